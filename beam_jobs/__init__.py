"""The build: receipt images to a dataset directory, as a Beam job. Imports no TensorFlow."""

import sys
from importlib.util import find_spec
from pathlib import Path

# A module of the user's project that has the name of a package of tillroll may come before it.
_package = Path(__file__).parents[1] / "schemas" / "__init__.py"
_found = find_spec("schemas")
if _found is None or not _package.samefile(_found.origin or ""):
    _message = (
        f"{_found and _found.origin} is imported instead of tillroll's package schemas: "
        "rename it, or run from another folder with PYTHONSAFEPATH=1"
    )
    # `python -m` imports the package of its program: a traceback would say no more.
    raise SystemExit(_message) if sys.argv[:1] == ["-m"] else ImportError(_message)
