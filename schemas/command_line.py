"""Command-line options of dataclasses and functions: their names, types, defaults and help.

A field or keyword argument `global_batch_size: int = 64` is the option `--global-batch-size N`, and
`fast: bool = True` the switch `--no-fast`. Its help is the text that a Google-style docstring gives
it under "Attributes:" or "Args:", so what a command says of an option is what its Python
documentation says. Two commands that take the same dataclass have the same flags:

    balance = Options(Balance, prefix="balance-", alpha=Flag(metavar="ALPHA"))
    balance.add_to(parser.add_argument_group("balance"))  # --balance-alpha ALPHA, ...
    balance.make(parser.parse(argv))  # Balance(alpha=0.3, ...)

It is argparse underneath: errors are one line, "error: ...", with status 2, and help is plain text.
"""

import argparse
import contextlib
import dataclasses
import inspect
import itertools
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from docstring_parser import google

T = TypeVar("T")

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


class CommandParser(argparse.ArgumentParser):
    """The parser of `python -m MODULE`: no abbreviations, and a usage line that fits a screen.

    Args:
      module: the module that is run.
      usage: positional and required arguments, such as "[DATA_DIR] --run-dir DIR".
      description: paragraphs with an empty line between them.
      epilog: paragraphs below the options.
      examples: lines that are printed as they are, below everything else.
    """

    def __init__(
        self, module: str, usage: str, description: str, *, epilog: str = "", examples: str = ""
    ) -> None:
        super().__init__(
            prog=f"python -m {module}",
            usage=" ".join(filter(None, ["%(prog)s", usage, "[options]"])),
            description=_wrapped(description),
            epilog="\n\n".join(filter(None, [_wrapped(epilog), examples])) or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # An abbreviation of a flag may be the name of one of Beam's.
            allow_abbrev=False,
        )

    def parse_known_args(  # type: ignore[override]  # one signature for argparse's overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parses the arguments that the command has; in all of them, ~ is the home directory."""
        tokens = sys.argv[1:] if args is None else args
        return super().parse_known_args([_with_home(token) for token in tokens], namespace)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parses all arguments; one that the command does not have ends it with status 2."""
        args, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unknown argument {unknown[0]}: --help lists the options")
        return args


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """Changes how one field is written on the command line.

    Attributes:
      name: its name there, without dashes; None for the field's.
      metavar: its value in the help, such as "PIXELS"; None for one that follows from the type.
      unit: the flag's unit in the field's, such as 1 << 20 where the flag takes MiB and the field
        bytes; both are whole numbers. The default and the limits in errors are converted, too.
      parse: makes the value from text, or raises ValueError with a sentence that begins with a
        verb, such as "takes HEIGHTxWIDTH, got 'x'"; None for a parser that follows from the type.
      default: the default as one would type it; None for the default's own text.
      help: its help; None for that of the docstring.
    """

    name: str | None = None
    metavar: str | None = None
    unit: int = 1
    parse: Callable[[str], Any] | None = None
    default: str | None = None
    help: str | None = None


class Options(Generic[T]):
    """The command-line options of a dataclass, or of a function's keyword arguments.

    Args:
      source: the dataclass or function. Its docstring has a section "Attributes:" or "Args:".
      prefix: put before the names of all fields: "balance-" makes the field `alpha` the flag
        `--balance-alpha`.
      flags: fields whose option does not follow from their name and type.
    """

    def __init__(self, source: Callable[..., T], *, prefix: str = "", **flags: Flag) -> None:
        self._source = source
        self._flags = flags
        self._defaults = _defaults(source)
        if unknown := flags.keys() - self._defaults.keys():
            raise ValueError(f"{source.__name__} has no {unknown.pop()!r}")
        self._names = {
            field: prefix + _typed_name(field, default, flags.get(field, Flag()))
            for field, default in self._defaults.items()
        }

    def flag(self, field: str) -> str:
        """The flag of a field, such as "--run-dir"."""
        return "--" + self._names[field].replace("_", "-")

    def types(self) -> dict[str, Any]:
        """Types by name of the flag without dashes, such as {"balance_alpha": float}."""
        types_ = typing.get_type_hints(self._source)
        return {self._dest(field): types_[field] for field in self._defaults}

    def _dest(self, field: str) -> str:
        return self.flag(field)[2:].replace("-", "_")

    def add_to(self, group: Any, *fields: str, default: str | None = None) -> None:
        """Adds options to a parser or a group of it.

        Args:
          group: the parser or group.
          fields: which fields, in this order; none for all.
          default: the help's words for an option that is not given, where this is not the
            field's default: such an option is None then, and `given` leaves it out.
        """
        # Not the annotations themselves, which may be texts.
        types_ = typing.get_type_hints(self._source)
        fields = fields or tuple(self._defaults)
        helps = self._helps(fields)
        for field in fields:
            flag = self._flags.get(field, Flag())
            text = flag.help or helps.get(field, "")
            if types_[field] is bool and not flag.parse:
                switch = "store_false" if self._defaults[field] is True else "store_true"
                group.add_argument(self.flag(field), action=switch, help=text.replace("%", "%%"))
                continue
            value = None if default else self._defaults[field]
            required = value is dataclasses.MISSING
            if not required:
                typed = default or flag.default or _in_unit(_text(value), flag.unit)
                text += f" (default: {typed})"
            group.add_argument(
                self.flag(field),
                type=_parser(types_[field], flag),
                required=required,
                default=None if required else value,
                metavar=flag.metavar or metavar(types_[field]),
                help=text.strip().replace("%", "%%"),
            )

    def values(self, args: argparse.Namespace) -> dict[str, Any]:
        """Values by field of all options that were added, and of arguments named like fields."""
        dests = {field: self._dest(field) for field in self._defaults}
        return {field: getattr(args, dest) for field, dest in dests.items() if hasattr(args, dest)}

    def make(self, args: argparse.Namespace, **values: Any) -> T:
        """Calls the dataclass or function with the options; `values` come before them.

        Raises:
          ValueError: it refuses a value. Where its sentence begins with "FIELD must", or has
            `FIELD` in backquotes, it names the flag instead.
        """
        with self._flags_in_errors():
            return self._source(**{**self.values(args), **values})

    def replace(self, value: Any, args: argparse.Namespace, **values: Any) -> Any:
        """Changes the fields of a dataclass that the command line gives; see `add_to`'s `default`.

        Raises:
          ValueError: like `make`.
        """
        with self._flags_in_errors():
            return dataclasses.replace(value, **{**self.given(args), **values})

    def given(self, args: argparse.Namespace) -> dict[str, Any]:
        """Values by field, without options that are not given: None, and switches as they are."""
        return {
            field: value
            for field, value in self.values(args).items()
            if value is not (self._defaults[field] if isinstance(value, bool) else None)
        }

    @contextlib.contextmanager
    def _flags_in_errors(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            sentence = self._with_flags(str(error), self._names)
            field, verb, rest = sentence.partition(" must ")
            if not verb or field not in self._names:
                if sentence == str(error):
                    raise
                raise ValueError(sentence) from error
            flag = self._flags.get(field, Flag())
            if flag.parse:  # typed in another form than the field's
                raise ValueError(f"{self.flag(field)}: {sentence}") from error
            rest = _in_unit(rest, flag.unit)
            raise ValueError(f"{self.flag(field)} must {rest}") from error

    def _helps(self, added: Sequence[str]) -> dict[str, str]:
        """Reads the docstring's text of each field; names of added fields become flags."""
        texts = {}
        # The fields that a dataclass inherits are described where they are declared.
        sources = (
            inspect.getmro(self._source)[::-1] if inspect.isclass(self._source) else [self._source]
        )
        parameters = (google.parse(inspect.getdoc(source) or "").params for source in sources)
        for parameter in itertools.chain.from_iterable(parameters):
            text = " ".join((parameter.description or "").split()).removesuffix(".")
            text = self._with_flags(text, added)
            for field in parameter.arg_name.split(", "):  # "height, width: size in pixels"
                texts[field] = text
        return texts

    def _with_flags(self, text: str, fields: Iterable[str]) -> str:
        """Replaces fields, which docstrings and errors name as `height`, by their flags."""
        for field in fields:
            text = text.replace(f"`{field}`", self.flag(field))
        return text


def parse_value(text: str, type_: Any) -> Any:
    """Makes a value of a type from text.

    The type is int, float, str, bool, Path, a Literal, a pair or a tuple of them, or a union of
    several; where None is among these, "none" is None. Pairs are written "0.5@6000".

    Raises:
      ValueError: the text is not of the type; the sentence begins with "must be".
    """
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        if types.NoneType in arguments and text.lower() == "none":
            return None
        choices = [choice for choice in arguments if choice is not types.NoneType]
        for choice in choices:  # in their order, so that "3" is an int of int | str
            with contextlib.suppress(ValueError):
                return parse_value(text, choice)
        raise ValueError(f"must be {' or '.join(map(_kind, arguments))}, got {text!r}")
    if origin is typing.Literal:
        for choice in arguments:
            if text == str(choice):
                return choice
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = text.split("@")
        if len(parts) == len(arguments):
            pairs = zip(parts, arguments, strict=True)
            return tuple(parse_value(part.strip(), argument) for part, argument in pairs)
        raise ValueError(f"must be {_kind(type_)}, got {text!r}")
    if origin is tuple:
        return tuple(parse_value(part.strip(), arguments[0]) for part in text.split(","))
    if type_ is bool and text in ("true", "false"):
        return text == "true"
    if type_ in (int, float, str, Path):
        with contextlib.suppress(ValueError):
            return type_(text)
    raise ValueError(f"must be {_kind(type_)}, got {text!r}")


def metavar(type_: Any) -> str:
    """The word for a value of a type in a command's help: N, X, NAME or the choices."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        return metavar(arguments[0])
    if origin is typing.Literal:
        return "{" + ",".join(map(str, arguments)) + "}"
    if origin is tuple:
        return f"{metavar(arguments[0])},…"
    return {int: "N", float: "X", bool: "{true,false}", Path: "PATH"}.get(type_, "NAME")


def _kind(type_: Any) -> str:
    if typing.get_origin(type_) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(type_)))}"
    if type_ is types.NoneType:
        return "none"
    if typing.get_origin(type_) is tuple:
        first, last = typing.get_args(type_)
        return f"{_kind(first)}, or several with commas" if last is Ellipsis else "a pair X@Y"
    return _KINDS.get(type_, str(type_))


def _typed_name(field: str, default: Any, flag: Flag) -> str:
    """The name of a field's flag. A switch that is on by default is named by what turns it off."""
    if flag.name:
        return flag.name
    return f"no_{field}" if default is True and not flag.parse else field


def _text(value: Any) -> str:
    """Writes a value as one would type it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_unit(text: str, unit: int) -> str:
    """Converts the whole numbers of a text to a flag's unit: 1 to 2097152 bytes are 1 to 2 MiB.

    Rounded up: where 1 byte is the least that is allowed, 1 MiB is the least that can be typed.
    """
    if unit == 1:
        return text
    return re.sub(r"\d+", lambda number: str(-(-int(number[0]) // unit)), text)


def _parser(type_: Any, flag: Flag) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        try:
            value = flag.parse(text) if flag.parse else parse_value(text, type_)
            return value if flag.unit == 1 else value * flag.unit
        except ValueError as error:  # argparse drops the sentence of a ValueError
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _defaults(source: Callable[..., Any]) -> dict[str, Any]:
    """Defaults of fields or keyword arguments by name; MISSING where there is none."""
    if not dataclasses.is_dataclass(source):
        parameters = inspect.signature(source).parameters
        empty = inspect.Parameter.empty
        return {
            name: dataclasses.MISSING if parameter.default is empty else parameter.default
            for name, parameter in parameters.items()
        }
    return {
        field.name: field.default
        if field.default_factory is dataclasses.MISSING
        else field.default_factory()
        for field in dataclasses.fields(source)
    }


def _with_home(token: str) -> str:
    """Expands the ~ of an argument, which bash does not behind the equals sign of --output=~/x."""
    flag, equals, value = token.rpartition("=") if token.startswith("--") else ("", "", token)
    is_home = value == "~" or value.startswith("~/")
    return f"{flag}{equals}{Path(value).expanduser()}" if is_home else token


def _wrapped(text: str) -> str:
    width = shutil.get_terminal_size().columns - 2  # argparse's own
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs)
