"""Checks of what other tools read of a dataset directory, each in an environment of its own."""
