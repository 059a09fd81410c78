"""The documentation: the code of its pages runs, and the errors that it explains exist."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import page_runner
from tests.support.page_runner import PageError, blocks, run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = "tutorials/build.md"
STORES = "how_to/object_stores.md"
# The tutorials build with Beam and read with TensorFlow, and draw the receipts they need.
NEEDS = ("apache_beam", "faker", "matplotlib", "tensorflow")
STORE_NEEDS = ("boto3", "moto", "tensorflow_io")


def pages() -> list[str]:
    """Pages with code."""
    found = [
        path.relative_to(DOCS).as_posix()
        for path in sorted(DOCS.rglob("*.md"))
        if any(
            block.is_run and block.language in ("python", "console", "sh")
            for block in blocks(path.read_text())
        )
    ]
    assert BUILD in found
    return found


def run_page(page: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.page_runner", str(DOCS / page), str(folder)],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_without(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed in this environment")


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first tutorial leaves, with receipts and a dataset."""
    skip_without(*NEEDS)
    folder = tmp_path_factory.mktemp("tutorial")
    assert run_page(BUILD, folder).startswith("8 blocks")
    return folder


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[dict[str, str]]:
    """An object store for the page that needs one."""
    if request.node.callspec.params["page"] != STORES:
        yield {}
        return
    skip_without(*NEEDS, *STORE_NEEDS)
    from tests.support.stores import started

    with started("s3", tmp_path_factory.mktemp("server")) as store:
        yield dict(store.environment)


@pytest.mark.parametrize("page", [each for each in pages() if each != BUILD])
def test_the_code_of_a_page_runs(
    tutorial: Path, environment: dict[str, str], tmp_path: Path, page: str
):
    shutil.copytree(tutorial / "data", tmp_path / "data")
    (tmp_path / "receipts").symlink_to(tutorial / "receipts")
    assert "blocks of" in run_page(page, tmp_path, **environment)


def test_pages_say_why_code_is_not_run():
    left_out = [
        (path.name, block.line)
        for path in DOCS.rglob("*.md")
        for block in blocks(path.read_text())
        if not block.is_run
    ]
    assert len(left_out) == 13, left_out


PAGE = """\
```python
number = 2
print("a", number, "c")
```
```text
{printed}
```

```{{code-block}} python
:caption: made.py
print("made")
```

:::{{note}}
```console
$ python made.py && \\
    echo {said}
made
said
```
:::

<!-- not run: it could not end well -->
```sh
false
```
"""


@pytest.mark.parametrize(
    ("printed", "said", "line"),
    [("a 2 c", "said", None), ("a ... c", "said", None), ("b", "said", 6), ("a 2 c", "hm", 16)],
)
def test_a_page_is_held_to_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, said: str, line: int | None
):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(printed=printed, said=said))
    monkeypatch.chdir(tmp_path)
    if line is None:
        assert run(page) == 2
    else:
        with pytest.raises(PageError, match=rf"page\.md:{line}: the page says"):
            run(page)


@pytest.mark.parametrize(
    "page", ["```python\n1 / 0\n```\n", "```sh\nfalse\ntrue\n```\n", "```sh\nfalse | true\n```\n"]
)
def test_code_that_fails_fails(tmp_path: Path, page: str):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(PageError, match=r"page\.md:2: "):
        run(tmp_path / "page.md")


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_runner, "LIMIT_S", 1)
    (tmp_path / "page.md").write_text("```sh\necho begun\nsleep 60 &\nfalse\n```\n")
    with pytest.raises(PageError, match=r"page\.md:2: [^$]*was not done after 1 s:\nbegun"):
        run(tmp_path / "page.md")


def messages() -> str:
    """All texts of the packages, with "…" for what is put into them."""
    found = []
    for package in ("beam_jobs", "pipeline", "schemas"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        each.value if isinstance(each, ast.Constant) else "…"
                        for each in node.values
                    ]
                    found.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


EXPLAINED = re.findall(
    r'^### "(.*)"$', (DOCS / "troubleshooting.md").read_text(), flags=re.MULTILINE
)


@pytest.mark.parametrize("message", EXPLAINED)
def test_an_error_that_is_explained_exists(message: str):
    assert message in messages()


def test_every_reason_of_the_quarantine_is_explained():
    pytest.importorskip("apache_beam")
    from beam_jobs.rejection import Reason

    text = (DOCS / "troubleshooting.md").read_text()
    assert [each for each in Reason if f"`{each}`" not in text] == []


LINKING = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def test_links_of_the_repository_lead_somewhere():
    """Links between the pages of the site are checked when it is built."""
    links = [
        (name, link)
        for name in LINKING
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    ]
    assert len(links) > 20
    assert [each for each in links if not (ROOT / each[1]).exists()] == []


def test_the_readme_imports_what_there_is():
    pytest.importorskip("tensorflow")
    text = (ROOT / "README.md").read_text()
    [program] = [block.text for block in blocks(text) if block.language == "python"]
    imports = [each for each in ast.parse(program).body if isinstance(each, ast.ImportFrom)]
    assert [each.module for each in imports] == ["tillroll"]
    exec(compile(ast.Module(imports, []), "README.md", "exec"), {})
