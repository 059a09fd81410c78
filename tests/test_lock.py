"""uv.lock is the same wherever it was made, and the oldest versions that are allowed are tested."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())


def test_lock_names_no_index_but_pypi():
    assert len(LOCK["package"]) > 100
    for package in LOCK["package"]:
        if package["source"] == {"editable": "."}:
            continue
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        assert files, package["name"]
        for file in files:
            assert urlsplit(file["url"]).netloc == "files.pythonhosted.org", file["url"]
            assert file["hash"].startswith("sha256:"), file["url"]


def test_the_oldest_versions_that_are_tested_are_the_oldest_that_are_allowed():
    allowed = (ROOT / "pyproject.toml").read_text()
    tested = re.findall(r"(\S+)==(\d+\.\d+)\.0\b", (ROOT / "Makefile").read_text())
    assert [name for name, _ in tested] == ["pillow", "simplejpeg"]
    for name, version in tested:
        assert f'"{name}>={version}"' in allowed
