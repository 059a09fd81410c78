"""Versions that must be the same on all machines of a job, or its bytes may not be."""

import sys

from apache_beam.version import __version__ as beam_version

from schemas import __version__

VARIABLE = "TILLROLL_VERSIONS"  # of a worker's environment: the versions of the command


def versions() -> str:
    """Returns the versions of this process, such as "Python 3.11; apache-beam 2.72.0; …"."""
    python = ".".join(map(str, sys.version_info[:2]))
    return f"Python {python}; apache-beam {beam_version}; tillroll {__version__}"


def check_versions(command: str) -> None:
    """Compares the versions of this process with those of the command.

    Raises:
      RuntimeError: they differ.
    """
    if command != versions():
        raise RuntimeError(
            f"this worker ({sys.executable}) has {versions()}, and the command that started the "
            f"job has {command}: install the same on all machines"
        )
