"""The public API: the names of `pipeline`, and the version.

Reading and training import `tillroll`. The commands are those of `beam_jobs` and `pipeline`.
"""

from typing import TYPE_CHECKING, Any

import pipeline
from schemas import __version__

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
