"""The contract between the build and the runtime: what a dataset directory holds.

Imports neither half, no TensorFlow and no Beam.
"""

__version__ = "0.2.0"
