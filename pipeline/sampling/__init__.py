"""The plan: which records form each global batch. Arithmetic, in NumPy and in TensorFlow graphs."""
