"""Imports modules, and prints which of them change anything that is not theirs.

`python -m tests.support.import_probe LIBRARIES MODULES`, each a list with commas. The libraries are
imported first, as what they change themselves is not ours; those that are not installed are left
out, and so are modules that need them.
"""

import importlib
import logging
import os
import sys
import warnings
from typing import Any


def settings() -> dict[str, Any]:
    """Returns the settings of this process that are its user's choice."""
    root = logging.getLogger()
    matplotlib = sys.modules.get("matplotlib")
    return {
        "environment": dict(os.environ),
        "backend of matplotlib": matplotlib.get_backend() if matplotlib else None,
        "root logger": (root.level, root.disabled, list(root.handlers), list(root.filters)),
        "filters of warnings": list(warnings.filters),
    }


def import_installed(name: str) -> bool:
    """Imports a module; returns False if a library that it needs is not installed."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def main(libraries: list[str], modules: list[str]) -> None:
    """Prints a line for each change, and the number of modules that could be imported."""
    for library in libraries:
        import_installed(library)
    current = ""

    def watch(event: str, arguments: Any) -> None:
        writes = event == "open" and set(str(arguments[1] or "")) & set("wax+")
        if event == "socket.connect" or writes:
            print(f"{current}: {event} {arguments[0]}")

    sys.addaudithook(watch)
    imported = 0
    before = settings()
    for current in modules:
        imported += import_installed(current)
        after = settings()
        for name in after:
            if after[name] != before[name]:
                print(f"{current}: {name}: {before[name]} -> {after[name]}")
        before = after
    print(f"{imported} imported; loaded: {' '.join(sorted(sys.modules))}")


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2].split(","))
