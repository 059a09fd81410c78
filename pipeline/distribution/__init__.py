"""Distribution strategies, clusters and their processes."""
