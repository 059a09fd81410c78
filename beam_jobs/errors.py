"""The error that ends a build with a sentence for the user instead of a traceback."""

import re

TRY_AGAIN = "the runner lost or repeated some; run the build again with --workers 1, or elsewhere"


class BuildError(Exception):
    """The build can't go on; the message is for the user."""


def build_error_in(error: BaseException) -> str | None:
    """The message of the BuildError that made a Beam job fail, None if it was another error.

    A runner re-raises a worker's error as one of its own, with the worker's traceback as text.
    """
    text = str(error) if isinstance(error, BuildError) else None
    if text is None:
        found = re.search(rf"{__name__}\.{BuildError.__name__}: (.*)", str(error), re.DOTALL)
        text = found.group(1) if found else None
    return text and re.split(r" \[while running|\n\n", text)[0].strip()
