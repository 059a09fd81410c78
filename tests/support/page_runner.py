"""Runs the code of a page of the documentation: `python -m tests.support.page_runner PAGE FOLDER`.

In the order of the page, and in FOLDER:

- `python` blocks run one after the other in this process, so that names stay.
- `console` blocks are commands behind `$ `, each followed by what it prints, and `sh` blocks are
  commands alone.
- A `text` block that follows a `python` or `sh` block at once is what that one prints.
- A `code-block` or `literalinclude` with a `:caption:` is a file of that name.
- Other languages are no code. A block behind `<!-- not run: REASON -->` is left out.

What is printed is compared as by doctest, with `...` for any text; standard error is not looked at.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import own_lines

ROOT = Path(__file__).parents[2]
LIMIT_S = 300  # for a command
_FENCE = re.compile(r"(`{3,}|:{3,})\s*(?:\{([\w-]+)\})?\s*(.*?)\s*")
_NOT_RUN = re.compile(r"<!-- not run: .{10,} -->")
_RUN = ("python", "console", "sh")


@dataclass(kw_only=True)
class Block:
    """A fenced block.

    Attributes:
      line: number of its first line in the page.
      directive: of MyST, such as "literalinclude"; "" for a plain block.
      language: of a plain block or a `code-block`; the file of a `literalinclude`.
      options: of the directive.
      text: what stands in it.
      is_run: False where the page says that it is not run.
      follows: whether nothing stands between it and the block before.
    """

    line: int
    directive: str
    language: str
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""
    is_run: bool = True
    follows: bool = False


class PageError(Exception):
    """A block does not do what the page says."""


def blocks(page: str) -> Iterator[Block]:
    """Fenced blocks of a page, in order."""
    lines = page.splitlines()
    number, is_run, follows = 0, True, False
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        if not opening:
            if _NOT_RUN.fullmatch(lines[number]):
                is_run = False
            elif lines[number].strip():
                is_run, follows = True, False
            number += 1
            continue
        fence, directive, language = opening.groups()
        block = Block(
            line=number + 2,
            directive=directive or "",
            language=language,
            is_run=is_run,
            follows=follows,
        )
        if fence[0] == ":":  # an admonition, whose blocks are blocks of the page
            number += 1
            continue
        end = lines.index(fence, number + 1)
        body = lines[number + 1 : end]
        while directive and body and (option := re.fullmatch(r":(\w+):\s*(.*)", body[0])):
            block.options[option[1]] = option[2]
            body.pop(0)
        block.text = "\n".join(body).strip("\n") + "\n"
        yield block
        number, is_run, follows = end + 1, True, True


def run(page: Path) -> int:
    """Runs the blocks of a page in the working directory; returns how many ran.

    Raises:
      PageError: a block fails, or prints something else.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, number_run = None, 0
    for block in blocks(page.read_text()):
        try:
            if block.language == "text" and block.follows and printed is not None:
                _compare(block.text, printed)
            printed = None
            if not block.is_run:
                continue
            if caption := block.options.get("caption"):
                text = block.text
                if block.directive == "literalinclude":
                    text = (page.parent / block.language).read_text()
                Path(caption).write_text(text)
                continue
            if block.language == "python":
                printed = _run_python(block, page, names)
            elif block.language == "console":
                for command, expected in _commands(block.text):
                    _compare(expected, _run_shell(command))
            elif block.language == "sh":
                printed = _run_shell(block.text)
            number_run += not block.directive and block.language in _RUN
        except PageError as error:
            raise PageError(f"{page}:{block.line}: {error}") from None
    return number_run


def _run_python(block: Block, page: Path, names: dict[str, Any]) -> str:
    # Line numbers of tracebacks are those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(code, names)
    except Exception:
        raise PageError(f"{output.getvalue()}\n{traceback.format_exc()}") from None
    return output.getvalue()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, and what each prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        end = re.match(r"(?:.*\\\n)*.*\n", part).end()  # lines that end in a backslash go on
        yield part[:end], part[end:]


def _run_shell(command: str) -> str:
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, with all processes that it starts
    ) as process:
        try:
            printed, said = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, said = process.communicate()
            raise PageError(f"{command}was not done after {LIMIT_S} s:\n{printed}{said}") from None
    if process.returncode:
        raise PageError(f"{command}ended with {process.returncode}:\n{printed}{said}")
    return "\n".join([*own_lines(printed), ""])  # of commands that end with 2>&1


def _compare(expected: str, printed: str) -> None:
    if not expected:  # the page does not show what it prints
        return
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, printed, options):
        raise PageError(f"the page says\n{expected}\nand it prints\n{printed}")


def main() -> None:
    """Runs the command."""
    page, folder = (Path(each).resolve() for each in sys.argv[1:])
    os.chdir(folder)
    # As in a shell in which the project is installed.
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    try:
        print(f"{run(page)} blocks of {shlex.quote(page.name)} ran")
    except PageError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
