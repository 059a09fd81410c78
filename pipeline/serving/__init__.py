"""Exported models, which take image files."""
