"""Shards, listings and the manifest, and how they get into the output directory."""
