"""Command-line arguments of the commands, and the options they stand for."""
