"""uv.lock is the same wherever it was made."""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

LOCK = tomllib.loads((Path(__file__).parents[1] / "uv.lock").read_text())


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
