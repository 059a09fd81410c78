"""The result of some training steps."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The result of some steps.

    Attributes:
      step: steps done since the start of the run.
      losses: losses of the steps just done, in order.
      waited_s: seconds that these steps waited for input.
      tracing_s: seconds in which TensorFlow made the graph of the step, before the first of them.
      dropped: gradients that came too late for their step, see `TrainOptions.backup_workers`; None
        where no worker can be late.
    """

    step: int
    losses: tuple[float, ...]
    waited_s: float
    tracing_s: float = 0.0
    dropped: int | None = None
