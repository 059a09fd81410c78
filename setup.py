"""Lets Beam package this project for remote workers (`--setup_file=./setup.py`).

Everything is declared in pyproject.toml but the addresses of the project, which are those of the
repository that builds the release.
"""

import os

from setuptools import setup

# Set on GitHub's runners: a fork's wheel links to the fork, and one built elsewhere has no links.
repository = os.environ.get("GITHUB_REPOSITORY")
address = f"{os.environ.get('GITHUB_SERVER_URL')}/{repository}"
urls = {
    "Source": address,
    "Documentation": f"{address}/tree/HEAD/docs",
    "Issues": f"{address}/issues",
    "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
}
setup(project_urls=urls if repository else {})
