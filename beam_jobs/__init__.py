"""The build: receipt images to a dataset directory, as an Apache Beam job. Imports no TensorFlow."""
