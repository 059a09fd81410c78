"""The build: receipt images to a dataset directory, as a Beam job. Imports no TensorFlow."""
