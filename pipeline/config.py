"""Options of the input pipeline."""

import itertools
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pipeline.option_checks import check_integer, check_number, check_step, check_type

Size = tuple[int, int]  # (height, width) in pixels
Augmentation = Callable[[dict[str, Any], Any], dict[str, Any]]
Phases = tuple[tuple[float, int], ...]


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Sets how often the records of each layout come.

    Attributes:
      alpha: a layout of n records gets a share in proportion to n ** alpha. 1 keeps the natural
        shares, 0 gives every layout the same. In the words of multilingual models (T5, seqio) it
        is 1 / T of a temperature T. Or phases of a run, pairs of an alpha and the step from which
        it holds: ((1.0, 0), (0.5, 6000)), on command lines 1@0,0.5@6000.
      repeat_cap: highest number of times a record comes in an epoch, on average over its layout.
      by: the category to balance and to spread evenly, the layout or a label of type category.
    """

    alpha: float | Phases = 1.0
    repeat_cap: float = 8.0
    by: str = "layout"

    def __post_init__(self) -> None:
        if isinstance(self.alpha, tuple):
            _check_phases(self.alpha)
        for alpha, _ in self.phases:
            check_number("alpha", alpha, example=0.3)
            if not 0 <= alpha <= 1:
                raise ValueError(
                    f"alpha must be 0 (every layout alike) to 1 (natural shares), got {alpha}"
                )
        check_number("repeat_cap", self.repeat_cap, example=8)
        check_type("by", self.by, str, example="'layout'")
        if not self.repeat_cap >= 1:
            raise ValueError(f"repeat_cap must be at least 1, got {self.repeat_cap}")

    @property
    def phases(self) -> Phases:
        """Alphas and the steps from which on they hold: ((0.3, 0),) for an alpha of 0.3."""
        return self.alpha if isinstance(self.alpha, tuple) else ((self.alpha, 0),)

    @property
    def is_natural(self) -> bool:
        """True where every layout keeps its natural share in all phases."""
        return all(alpha == 1 for alpha, _ in self.phases)

    @property
    def alpha_text(self) -> str:
        """Alpha as command lines have it: "0.3", or "1.0@0,0.5@6000" for phases."""
        if not isinstance(self.alpha, tuple):
            return str(self.alpha)
        return _phases_text(tuple((float(alpha), step) for alpha, step in self.alpha))

    def in_parts(self, parts: int) -> Self:
        """Returns the balance of datasets that count `parts` batches for each step of the run."""
        if not isinstance(self.alpha, tuple):
            return self
        return replace(self, alpha=tuple((alpha, step * parts) for alpha, step in self.alpha))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Sets how records are read; None chooses by where the dataset lies.

    Attributes:
      block_length: number of neighboring records that are read, and dealt to batches, together. 1
        keeps every layout within one record of its share of each batch. With longer blocks, which
        object stores need to be fast, a batch is made of random blocks of evenly chosen shards:
        shares hold on average only, and `Balance.alpha` must be 1.
      parallel_reads: number of blocks whose records come in turn; in local files, of batches.
        Above 1, TensorFlow begins to read twice as many ahead, so that up to three times as many
        requests are under way. In `s3://` they are never more than 25, the connections of
        tensorflow-io, so that values above 9 send no more at a time there.
      buffer_bytes: bytes fetched by a request of TensorFlow.
      verify: whether the checksums of local shards with raw pixels, which are mapped into memory as
        `portable` says, are verified when a dataset is made. The process reads each shard for that
        once. All other records are verified each time that they are read.
      portable: makes datasets that other processes can run, such as workers of the tf.data service.
        Otherwise, local shards with raw pixels are mapped into the memory of this process, which is
        several times as fast as parsing their records. They are if each record is dealt by itself,
        images are not cropped, `buffer_bytes` is None and `InputConfig.features` names no stored
        features but the image, the label and `NAME_id` of categories. ParameterServerStrategy needs
        no option: its datasets are always portable.
    """

    block_length: int = 1
    parallel_reads: int | None = None
    buffer_bytes: int | None = None
    verify: bool = True
    portable: bool = False

    def __post_init__(self) -> None:
        check_integer("block_length", self.block_length, example=32)
        for name in ("parallel_reads", "buffer_bytes"):
            value = getattr(self, name)
            if value is not None:
                check_integer(name, value, example=32)
        check_type("verify", self.verify, bool, example="True")
        check_type("portable", self.portable, bool, example="True")


@dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """Cuts a random window out of each training image; only the window is decoded.

    The window has the resolution of the stored image, and its height and width are drawn
    independently. It begins at a multiple of 8 pixels. `augmentation.RandomZoom` also shows a
    part of an image, but of one that was decoded and scaled before.

    Attributes:
      min_side: minimum height and width of the window, as a fraction of the image's.
      min_visible: a box is set to 0 when less than this fraction of its area is in the window.
    """

    min_side: float = 0.7
    min_visible: float = 0.3

    def __post_init__(self) -> None:
        check_number("min_side", self.min_side, example=0.7)
        check_number("min_visible", self.min_visible, example=0.3)
        if not 0 < self.min_side <= 1:
            raise ValueError(f"min_side must be above 0 and at most 1, got {self.min_side}")
        if not 0 <= self.min_visible <= 1:
            raise ValueError(f"min_visible must be 0 to 1, got {self.min_visible}")


@dataclass(frozen=True, kw_only=True)
class InputConfig:
    """Sets how records become batches.

    Attributes:
      height, width: size of the images in pixels. With a number of `buckets`, the sizes have about
        the same area; with sizes of `buckets`, those count.
      buckets: images have several sizes instead of one, each batch a single one of them, so that
        long receipts need less padding. A tuple gives their (height, width) in pixels; a number
        chooses so many from the heights and widths of the dataset's images. Each image gets the
        size whose ratio of height to width is nearest to its own. None for one size.
      channels: 1 for grayscale, 3 for RGB.
      crop: cuts out a part of each image in training; None for none. Evaluation sees all of it.
      fit: images are fitted into the size on white padding ("pad"), or stretched to it, or fitted
        to its width, cut off below its height and padded where they end above it ("top").
      dtype: "float32" in 0…1, or "uint8" to normalize on the device.
      label: category whose id is the label.
      sample_weights: batches carry importance weights, which undo `balance`.
      features: None for batches as Keras takes them, (image, label) or, with `sample_weights`,
        (image, label, weight). Else the names of the features of a dict: "image", "label",
        "weight", "boxes", "text" (of the boxes), "id", "step" and "row" (number in the global
        batch, whose rows lie in another order), "seed" (of the example), the names of declared
        labels, and `NAME_id` for categories.
      max_boxes: rows of "boxes" and "text"; further boxes are left out.
      augmentations: operations of `pipeline.augmentation`, or any callables like them, run in
        batches; one with Python's `if` or `while` over tensors needs the decorator `tf.function`.
      views: copies of each image that the augmentations change independently, in training and in
        evaluation. With 2 or more, "image" and "boxes" are [n, views, ...], and the trainer gives a
        model the images of all views as n · views examples, those of a record side by side.
      placement: augmentations run in the input pipeline ("host"), or are left to the training
        step ("device"), which calls `pipeline.augmentation.chain.augment` on the features. The
        same seeds give the same images but for rounding, by some levels of 255.
      balance: frequency of each layout.
      reading: options of reading.
      parallel_decodes: number of images decoded or cropped at a time, whose files are in memory. It
        should exceed a batch, or no image of the next batch is begun before the last one of this
        batch is done. None for the images of a batch, at most 1,024, and 4 more per core: with
        batches of 32 on 8 cores, 64.
    """

    height: int = 256
    width: int = 256
    buckets: int | tuple[Size, ...] | None = None
    channels: Literal[1, 3] = 3
    crop: RandomCrop | None = None
    fit: Literal["pad", "stretch", "top"] = "pad"
    dtype: Literal["float32", "uint8"] = "float32"
    label: str = "layout"
    sample_weights: bool = False
    features: tuple[str, ...] | None = None
    max_boxes: int = 256
    augmentations: tuple[Augmentation, ...] = ()
    views: int = 1
    placement: Literal["host", "device"] = "host"
    balance: Balance = field(default_factory=Balance)
    reading: Reading = field(default_factory=Reading)
    parallel_decodes: int | None = None

    def __post_init__(self) -> None:
        for name, example in (
            ("height", 256),
            ("width", 256),
            ("channels", 3),
            ("max_boxes", 256),
            ("views", 2),
        ):
            check_integer(name, getattr(self, name), example=example)
        self._check_buckets()
        if self.parallel_decodes is not None:
            check_integer("parallel_decodes", self.parallel_decodes, example=64)
        check_type("label", self.label, str, example="'layout'")
        check_type("sample_weights", self.sample_weights, bool, example="True")
        check_type("balance", self.balance, Balance, example="Balance(alpha=0.3)")
        check_type("reading", self.reading, Reading, example="Reading(block_length=32)")
        if self.crop is not None:
            check_type("crop", self.crop, RandomCrop, example="RandomCrop()")
        if self.features is not None and not _is_tuple(self.features, str):
            raise ValueError(
                "features must be None or a tuple of names, such as ('image', 'label'), got "
                f"{self.features!r}"
            )
        if self.augmentations != () and not _is_tuple(self.augmentations, Callable):
            raise ValueError(
                "augmentations must be a tuple of functions, such as (Rotate(),), got "
                f"{self.augmentations!r}"
            )
        for augmentation in self.augmentations:
            if isinstance(augmentation, type):
                name = augmentation.__name__
                raise ValueError(
                    f"augmentations has the class {name}, and must have objects: write {name}()"
                )
        if self.views > 1 and not self.augmentations:
            raise ValueError(
                f"views {self.views} would be alike without augmentations: choose some, or set "
                "views to 1"
            )
        for name, allowed in (
            ("channels", (1, 3)),
            ("fit", ("pad", "stretch", "top")),
            ("dtype", ("float32", "uint8")),
            ("placement", ("host", "device")),
        ):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} must be {choices}, got {getattr(self, name)!r}")
        if self.reading.block_length > 1 and not self.balance.is_natural:
            raise ValueError(
                f"block_length {self.reading.block_length} deals neighbors together, whatever "
                f"their layout: set it to 1 for an alpha of {self.balance.alpha_text}"
            )
        if self.placement == "device" and not {"image", "seed"} <= set(self.features or ()):
            raise ValueError(
                "placement 'device' leaves augmentation to the training step, which needs the "
                "features 'image' and 'seed': name them in features"
            )

    def _check_buckets(self) -> None:
        if self.buckets is None:
            return
        buckets: Any = self.buckets
        if isinstance(buckets, numbers.Integral):
            check_integer("buckets", buckets, example=4)
        elif not _is_tuple(buckets, tuple) or not all(_is_tuple(size, int) for size in buckets):
            raise ValueError(
                "buckets must be a number of sizes, or sizes such as ((512, 384), (768, 256)), got "
                f"{buckets!r}"
            )
        else:
            for size in buckets:
                if len(size) != 2 or min(size) < 1:
                    raise ValueError(
                        f"buckets must have sizes of a height and a width in pixels, such as (768, "
                        f"256), got {size}"
                    )
            ratios = sorted((height / width, (height, width)) for height, width in buckets)
            for (ratio, size), (other_ratio, other) in itertools.pairwise(ratios):
                if ratio == other_ratio:
                    raise ValueError(
                        f"buckets must differ in their ratio of height to width, by which images "
                        f"find theirs, got {size} and {other}: leave one of them out"
                    )
        if self.reading.block_length > 1:
            raise ValueError(
                f"block_length {self.reading.block_length} deals neighbors together, whatever "
                "their size: set it to 1, or leave buckets out"
            )
        if len(self.balance.phases) > 1:
            raise ValueError(
                f"buckets have one alpha for all steps, got {self.balance.alpha_text}: choose one, "
                "or leave buckets out"
            )

    def with_features(self, *names: str) -> Self:
        """Adds features to a config whose batches are dicts, unless they are there already."""
        return replace(self, features=tuple(dict.fromkeys((*(self.features or ()), *names))))


def _phases_text(phases: Phases) -> str:
    return ",".join(f"{alpha}@{step}" for alpha, step in phases)


def _check_phases(phases: Phases) -> None:
    """Checks phases of alpha, but not the values of alpha.

    Raises:
      ValueError: they are not pairs, or their steps do not ascend from 0.
    """
    if not phases or not all(map(_is_phase, phases)):
        raise ValueError(
            "alpha must be a number or pairs of a number and a step, such as ((1.0, 0), "
            f"(0.5, 6000)), got {phases}"
        )
    steps = [step for _, step in phases]
    for step in steps:
        check_step("a step of alpha", step)
    if steps[0] != 0:
        raise ValueError(
            f"alpha must have a first phase at step 0, got {_phases_text(phases)}: put one first, "
            "such as 1.0@0"
        )
    if sorted({*steps}) != steps:
        raise ValueError(
            f"alpha must have phases whose steps ascend, got {_phases_text(phases)}: put them in "
            "order, each step once"
        )


def _is_phase(phase: Any) -> bool:
    """Tells whether a phase is a pair whose second part is an integer."""
    is_pair = isinstance(phase, tuple) and len(phase) == 2
    return is_pair and isinstance(phase[1], numbers.Integral)


def _is_tuple(values: Any, kind: Any) -> bool:
    """Tells whether values are a tuple of one or more of a kind."""
    return isinstance(values, tuple) and bool(values) and all(isinstance(x, kind) for x in values)
