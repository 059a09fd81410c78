"""Answers of Beam that are the same for each transform, kept: half of what a small job costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import userstate


class KeptOptions(PipelineOptions):
    """Options whose views are made once. Beam makes 650 views for a build, each with a parser."""

    def view_as(self, cls: type[PipelineOptions]) -> Any:
        """Returns the options of one class; all views share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


@contextmanager
def dofn_specs_kept() -> Iterator[None]:
    """Keeps, within the block, which state and timers the methods of a class of DoFns ask for.

    Beam inspects the thirty methods of each DoFn eight times.
    """
    inspect = userstate.get_dofn_specs
    known: dict[type, Any] = {}

    def get_dofn_specs(dofn: Any) -> Any:
        # `beam.Map` of a bound method has a method of its own, besides those of its class.
        if any(isinstance(each, MethodType) for each in vars(dofn).values()):
            return inspect(dofn)
        kind = type(dofn)
        if kind not in known:
            known[kind] = inspect(dofn)
        return known[kind]

    userstate.get_dofn_specs = get_dofn_specs
    try:
        yield
    finally:
        userstate.get_dofn_specs = inspect
