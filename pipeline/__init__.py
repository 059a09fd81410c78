"""The runtime: feeds a dataset directory to any `tf.distribute` strategy. Imports no Beam.

The names of `__all__` are the public API, and `import tillroll` gives the same ones. The options
are imported at once, as they need neither TensorFlow nor NumPy. All else is imported when its name
is first used (PEP 562); `Records` and `BatchSampler` need NumPy, and no TensorFlow.

No name here may be that of a module of this package: it would stand for the one or the other,
depending on what has been imported before.
"""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

from pipeline.config import Balance, InputConfig, RandomCrop, Reading  # noqa: E402

if TYPE_CHECKING:
    from pipeline.dataset import (
        make_dataset,
        make_distributed_dataset,
        make_evaluation_dataset,
    )
    from pipeline.distribution.host_memory import keep_host_memory
    from pipeline.distribution.strategies import make_strategy
    from pipeline.records.batch_sampler import BatchSampler
    from pipeline.records.images import decode_image
    from pipeline.records.info import DatasetInfo, load_info
    from pipeline.records.sequence import Records
    from pipeline.tasks.base import Head, Task
    from pipeline.training.keras_fit import EpochCheckpoints, MultiWorkerModel

# Where each name lies that is imported late. Type checkers read the block above instead.
_MODULES = {
    "BatchSampler": "pipeline.records.batch_sampler",
    "DatasetInfo": "pipeline.records.info",
    "EpochCheckpoints": "pipeline.training.keras_fit",
    "Head": "pipeline.tasks.base",
    "MultiWorkerModel": "pipeline.training.keras_fit",
    "Records": "pipeline.records.sequence",
    "Task": "pipeline.tasks.base",
    "decode_image": "pipeline.records.images",
    "keep_host_memory": "pipeline.distribution.host_memory",
    "load_info": "pipeline.records.info",
    "make_dataset": "pipeline.dataset",
    "make_distributed_dataset": "pipeline.dataset",
    "make_evaluation_dataset": "pipeline.dataset",
    "make_strategy": "pipeline.distribution.strategies",
}

__all__ = [
    "Balance",
    "BatchSampler",
    "DatasetInfo",
    "EpochCheckpoints",
    "Head",
    "InputConfig",
    "MultiWorkerModel",
    "RandomCrop",
    "Reading",
    "Records",
    "Task",
    "decode_image",
    "keep_host_memory",
    "load_info",
    "make_dataset",
    "make_distributed_dataset",
    "make_evaluation_dataset",
    "make_strategy",
]


if not TYPE_CHECKING:  # so that type checkers know of no other names

    def __getattr__(name: str) -> Any:
        """Imports a name of the public API when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value  # the next use does not come here
        return value


def __dir__() -> list[str]:
    """Lists the names that are still to be imported, too."""
    return sorted({*globals(), *__all__})
