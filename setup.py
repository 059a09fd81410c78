"""Lets Beam package this project for remote workers (`--setup_file=./setup.py`).

Everything is declared in pyproject.toml.
"""

from setuptools import setup

setup()
