"""Checks of a dataset directory, file by file."""
