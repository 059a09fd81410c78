"""Tools that the benchmark scripts have in common."""
