"""Options of the trainer."""

import math
from dataclasses import dataclass
from typing import Literal

import keras


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of training a model.

    Attributes:
      steps: steps of the whole run.
      global_batch_size: records of a step, over all replicas.
      learning_rate: highest learning rate of the schedule.
      learning_rate_batch: the global batch size that `learning_rate` is meant for; it is scaled in
        proportion to that of the run. None leaves it.
      schedule: "cosine" falls to 0 at the last step, "constant" does not.
      warmup_steps: steps in which the learning rate rises from 0.
      weight_decay: weight decay of AdamW.
      clip_norm: longest gradient, over all variables; None for any.
      accumulate: parts in which a replica takes its slice of a batch, one after the other, to save
        memory.
      mixed_precision: compute in 16 bits where the device can, keep variables in 32.
      seed: seeds variables, order and augmentations.
      steps_per_call: steps that the devices take without asking the host; with parameter servers,
        that all workers take before they wait for each other.
      backup_workers: with parameter servers, the number of workers that a step does not wait for.
        It takes the gradients of the others, of whichever come first, as one global batch. None
        for workers that never wait for each other.
      train_only: names of the layers that are trained, while all others stay as they are; "head"
        stands for the heads of the task. Without a name, all are trained.
    """

    steps: int = 1000
    global_batch_size: int = 64
    learning_rate: float = 1e-3
    learning_rate_batch: int | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    accumulate: int = 1
    mixed_precision: bool = False
    seed: int = 0
    steps_per_call: int = 10
    backup_workers: int | None = None
    train_only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "global_batch_size",
            "learning_rate_batch",
            "accumulate",
            "steps_per_call",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.backup_workers is not None and self.backup_workers < 0:
            raise ValueError(f"backup_workers must be at least 0, got {self.backup_workers}")
        if isinstance(self.train_only, str):
            raise ValueError(
                f"train_only must be a tuple of names, such as ('head',), got {self.train_only!r}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be 0 to 2**32 - 1, got {self.seed}")
        for name in ("learning_rate", "weight_decay", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f"schedule must be 'cosine' or 'constant', got {self.schedule!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(
                f"warmup_steps must be 0 to {self.steps - 1}, less than steps, "
                f"got {self.warmup_steps}"
            )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, got {self.clip_norm}")

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        """AdamW with the learning rate's schedule."""
        rate = self.learning_rate
        if self.learning_rate_batch is not None:
            rate *= self.global_batch_size / self.learning_rate_batch
        first_rate = 0.0 if self.warmup_steps else rate
        # A schedule also where the rate is constant: Keras makes a variable of a number, which a
        # checkpoint would set back to the rate that the run began with.
        schedule = keras.optimizers.schedules.PolynomialDecay(
            first_rate, max(1, self.warmup_steps), rate
        )
        if self.schedule == "cosine":
            schedule = keras.optimizers.schedules.CosineDecay(
                first_rate,
                self.steps - self.warmup_steps,
                warmup_target=rate if self.warmup_steps else None,
                warmup_steps=self.warmup_steps,
            )
        return keras.optimizers.AdamW(schedule, weight_decay=self.weight_decay)
