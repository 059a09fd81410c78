"""The trainer and its run directory."""
