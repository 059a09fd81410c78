"""Measurements of tillroll, and what they measure it with."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
