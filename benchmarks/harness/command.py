"""The command-line parser of a benchmark, like that of the commands of tillroll."""

from collections.abc import Iterable

from schemas.command_line import CommandParser


def benchmark_parser(
    name: str, usage: str, description: str | None, *, epilog: str = ""
) -> CommandParser:
    """Makes the parser of `python -m benchmarks.NAME`.

    Args:
      name: of the module.
      usage: positional arguments, such as "DATA_DIR".
      description: the module's docstring.
      epilog: paragraphs below the options.
    """
    # On a terminal, the marks of code in a docstring say nothing.
    text = (description or "").replace("`", "")
    return CommandParser(f"benchmarks.{name}", usage, text, epilog=epilog)


def add_numbers(parser: CommandParser, numbers: Iterable[tuple[str, int, str]]) -> None:
    """Adds options that are integers: name, default and meaning of each."""
    for name, default, meaning in numbers:
        parser.add_argument(
            f"--{name}",
            type=int,
            default=default,
            metavar="N",
            help=f"{meaning} (default: %(default)s)",
        )
