"""Exported models, wherever jobs use them: their files, and the boundary to TensorFlow."""
