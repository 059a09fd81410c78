"""Chunks of images prepared into staging files, and references to what they hold."""
