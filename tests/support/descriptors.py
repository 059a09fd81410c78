"""Files that this process has open."""

import os
from pathlib import Path


def descriptors(folder: Path) -> int:
    """Counts the descriptors of files in a folder."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(f"{folder}/") for link in links)


def maps(folder: Path) -> int:
    """Counts the files of a folder that this process has mapped into its memory."""
    return Path("/proc/self/maps").read_text().count(f" {folder}/")
