"""The backend that Keras will choose, found out before Keras is imported."""

import json
import os
import sys
from pathlib import Path

VARIABLE = "KERAS_BACKEND"


def check_backend() -> None:
    """Checks that Keras will run on TensorFlow; Keras itself is not imported.

    Raises:
      ValueError: the environment or keras.json names another backend.
    """
    name: object = os.environ.get(VARIABLE)
    source = f"the environment variable {VARIABLE}"
    if not name:
        settings = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
        name, source = _named_in(settings), str(settings)
    if name not in (None, "tensorflow"):
        raise ValueError(
            f"{source} sets Keras' backend to {str(name)[:40]!r}, and tillroll trains with "
            f"TensorFlow: set {VARIABLE}=tensorflow"
        )


def require_tensorflow(program: str) -> None:
    """Ends a command with a sentence and status 2 where Keras would not run on TensorFlow."""
    try:
        check_backend()
    except ValueError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(2)


def _named_in(path: Path) -> object:
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError):
        return None  # Keras goes on without the file, too
    return settings.get("backend") if isinstance(settings, dict) else None
