"""The build: receipt images to a dataset directory, as a Beam job. Imports no TensorFlow."""

import logging

# Beam warns, in the root logger and as it is imported, of a package that the build does not use.
logging.getLogger().addFilter(lambda record: "crcmod package not found" not in record.getMessage())
