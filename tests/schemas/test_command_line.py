"""Options of dataclasses and functions on a command line."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from schemas.command_line import CommandParser, Flag, Options, metavar, parse_value


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Says how large things are.

    Attributes:
      height, width: size in pixels, 100% of it.
      scale: factor of `height`; None
        for none.
      mode: "exact" or not.
      raw: bytes of each.
      memory: bytes of all.
      names: some names.
      fast: is less exact.
      whole: reads all.
      folder: where it lies.
    """

    height: int
    width: int = 3
    scale: float | None = None
    mode: Literal["exact", 2] = "exact"
    raw: int = 2 << 20
    memory: int = 5 << 20
    names: tuple[str, ...] = field(default_factory=lambda: ("a", "b"))
    fast: bool = False
    whole: bool = True
    folder: Path = Path("here")

    def __post_init__(self) -> None:
        for name in ("height", "raw"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 1 <= self.memory <= 7 << 20:
            raise ValueError(f"memory must be 1 to {7 << 20}, got {self.memory}")
        if self.width == self.height:
            raise ValueError(f"`width` and `height` are both {self.width}: choose another")


def mebibytes(text: str) -> int:
    """Bytes from a number of MiB."""
    return int(text) << 20


def sizes() -> Options[Sizes]:
    raw = Flag(name="raw-mb", metavar="MB", parse=mebibytes, default="2")
    memory = Flag(name="memory-mb", metavar="MB", unit=1 << 20)
    whole = Flag(help="reads a part")
    return Options(Sizes, raw=raw, memory=memory, width=Flag(metavar="PIXELS"), whole=whole)


def parser() -> CommandParser:
    return CommandParser("some.command", "--height N", "Does it.\n\nThen more.", epilog="The end.")


def parsed(*argv: str) -> Sizes:
    command, options = parser(), sizes()
    options.add_to(command)
    return options.make(command.parse(argv))


def test_defaults_are_those_of_the_fields():
    assert parsed("--height=1") == Sizes(height=1)


def test_every_option_reaches_its_field():
    assert parsed(
        "--height",
        "1",
        "--width=5",
        "--scale=0.5",
        "--mode=2",
        "--raw-mb=3",
        "--memory-mb=4",
        "--names=c, d",
        "--fast",
        "--no-whole",
        "--folder=there",
    ) == Sizes(
        height=1,
        width=5,
        scale=0.5,
        mode=2,
        raw=3 << 20,
        memory=4 << 20,
        names=("c", "d"),
        fast=True,
        whole=False,
        folder=Path("there"),
    )
    assert parsed("--height=1", "--scale=None").scale is None


def test_help_is_that_of_the_docstring(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = parser()
    sizes().add_to(command.add_argument_group("sizes"))
    assert command.format_help() == (
        "usage: python -m some.command --height N [options]\n\nDoes it.\n\nThen more.\n\n"
        "options:\n"
        "  -h, --help        show this help message and exit\n\n"
        "sizes:\n"
        "  --height N        size in pixels, 100% of it\n"
        "  --width PIXELS    size in pixels, 100% of it (default: 3)\n"
        "  --scale X         factor of --height; None for none (default: None)\n"
        '  --mode {exact,2}  "exact" or not (default: exact)\n'
        "  --raw-mb MB       bytes of each (default: 2)\n"
        "  --memory-mb MB    bytes of all (default: 5)\n"
        "  --names NAME,…    some names (default: a,b)\n"
        "  --fast            is less exact\n"
        "  --no-whole        reads a part\n"
        "  --folder PATH     where it lies (default: here)\n\n"
        "The end.\n"
    )


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "the following arguments are required: --height"),
        (["--height=x"], "argument --height: must be a whole number, got 'x'"),
        (["--height=1", "--scale=x"], "argument --scale: must be a number or none, got 'x'"),
        (["--height=1", "--mode=3"], "argument --mode: must be one of exact, 2, got '3'"),
        (["--height=0"], "--height must be at least 1, got 0"),
        (["--height=1", "--raw-mb=0"], "--raw-mb: raw must be at least 1, got 0"),
        (["--height=1", "--memory-mb=0"], "--memory-mb must be 1 to 7, got 0"),
        (["--height=1", "--memory-mb=-3"], "--memory-mb must be 1 to 7, got -3"),
        (["--height=1", "--memory-mb=8"], "--memory-mb must be 1 to 7, got 8"),
        (["--height=1", "--memory-mb=x"], "argument --memory-mb: must be a whole number, got 'x'"),
        (["--height=3"], "--width and --height are both 3: choose another"),
        (["--height=1", "--heigth=3"], "unknown argument --heigth=3: --help lists the options"),
        (["--height=1", "--wid=3"], "unknown argument --wid=3: --help lists the options"),
    ],
)
def test_errors(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    command, options = parser(), sizes()
    options.add_to(command)

    def run() -> None:
        try:
            options.make(command.parse(argv))
        except ValueError as error:
            command.error(str(error))

    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: python -m some.command --height N [options]"
    assert error == f"python -m some.command: error: {sentence}"


def test_options_that_are_not_given_change_nothing():
    command, options = parser(), Options(Sizes, prefix="size-")
    options.add_to(command, "width", "mode", "fast", "whole", default="the task's")
    given = Sizes(height=7, width=8, mode=2, fast=True, whole=False)
    assert options.replace(given, command.parse([])) == given
    after = options.replace(given, command.parse(["--size-width=4"]), height=1)
    assert after == Sizes(height=1, width=4, mode=2, fast=True, whole=False)
    asked = command.parse(["--size-no-whole"])
    assert options.replace(Sizes(height=1), asked) == Sizes(height=1, whole=False)
    text = " ".join(command.format_help().split())
    assert "--size-width N size in pixels, 100% of it (default: the task's)" in text


def test_functions_have_options_too():
    def draw(path: str, *, columns: int = 2, color: str = "red") -> tuple[str, int, str]:
        """Draws.

        Args:
          path: the file.
          columns: how many.
          color: their color.
        """
        return path, columns, color

    command, options = parser(), Options(draw, color=Flag(metavar="COLOR"))
    options.add_to(command, "columns", "color")
    assert options.make(command.parse(["--columns=3"]), path="a") == ("a", 3, "red")
    assert "--color COLOR  their color (default: red)" in command.format_help()


def test_flags_are_those_of_fields():
    with pytest.raises(ValueError, match="Sizes has no 'depth'"):
        Options(Sizes, depth=Flag())


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, "1.5"),
        (float, "x"),
        (bool, "yes"),
        (Literal["a"], "b"),
        (dict[str, int], "{}"),
        (tuple[float, int], "1"),
        (tuple[float, int], "1@2@3"),
    ],
)
def test_values_of_another_type_are_refused(type_: object, text: str):
    with pytest.raises(ValueError, match=rf"^must be .*, got {re.escape(repr(text))}$"):
        parse_value(text, type_)


def test_pairs():
    type_ = float | tuple[tuple[float, int], ...]
    assert parse_value("0.5", type_) == 0.5
    assert parse_value("1@0, 0.5@6000", type_) == ((1.0, 0), (0.5, 6000))
    sentence = r"^must be a number or a pair X@Y, or several with commas, got '1@0,x'$"
    with pytest.raises(ValueError, match=sentence):
        parse_value("1@0,x", type_)


def test_metavars():
    found = [metavar(each) for each in (int | None, float, bool, str, tuple[int, ...])]
    assert found == ["N", "X", "{true,false}", "NAME", "N,…"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--run-dir=~/x"], "/home/me/x"),
        (["--run-dir", "~/x"], "/home/me/x"),
        (["--run-dir=~"], "/home/me"),
        (["--run-dir=a~/x"], "a~/x"),
        (["--run-dir=./~/x"], "./~/x"),
        (["--run-dir=~user"], "~user"),
    ],
)
def test_a_tilde_is_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], expected: str
) -> None:
    """Shells leave it alone behind an equals sign."""
    monkeypatch.setenv("HOME", "/home/me")
    parser = CommandParser("m", "", "")
    parser.add_argument("--run-dir")
    assert parser.parse(argv).run_dir == expected
