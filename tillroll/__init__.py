"""The public API: the names of `pipeline`, and the version.

Reading and training import `tillroll`. The commands are those of `beam_jobs` and `pipeline`.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A module of the user's project that has the name of a package of tillroll may come before it.
_package = Path(__file__).parents[1] / "pipeline" / "__init__.py"
_found = find_spec("pipeline")
if _found is None or not _package.samefile(_found.origin or ""):
    _message = (
        f"{_found and _found.origin} is imported instead of tillroll's package pipeline: "
        "rename it, or run from another folder with PYTHONSAFEPATH=1"
    )
    # `python -m` imports the package of its program: a traceback would say no more.
    raise SystemExit(_message) if sys.argv[:1] == ["-m"] else ImportError(_message)

import pipeline  # noqa: E402
from schemas import __version__  # noqa: E402

if TYPE_CHECKING:
    from pipeline import *  # noqa: F403

__all__ = ["__version__"]
__all__ += pipeline.__all__


if not TYPE_CHECKING:  # so that type checkers know of no other names

    def __getattr__(name: str) -> Any:
        """Leaves it to `pipeline` to import a name when it is first used."""
        if name not in pipeline.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(pipeline, name)


def __dir__() -> list[str]:
    """Lists the names that are still to be imported, too."""
    return sorted({*globals(), *__all__})
