"""Texts of inputs in messages, cut: a value can be a whole image, and messages go to terminals."""

from typing import Any

VALUE_CHARACTERS = 100
MESSAGE_CHARACTERS = 1000  # with a path, a value and what to do next


def shortened(text: str, characters: int = VALUE_CHARACTERS) -> str:
    """Cuts a text to a number of characters; an ellipsis then stands at its end."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def shown(value: Any) -> str:
    """Writes a value as Python does, cut to 100 characters."""
    # A text is cut first: to escape a megabyte of it would take ten times its memory.
    return shortened(repr(value[: VALUE_CHARACTERS + 1] if isinstance(value, str) else value))
