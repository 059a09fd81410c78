"""Options of the jobs: frozen, checked when made, and free of Beam's own options."""

import hashlib
import json
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, get_args

import apache_beam as beam

from beam_jobs.images.image import ImageOptions
from beam_jobs.layouts.descriptors import LayoutFrom, Method, find_method, makes_layouts
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.near_duplicates.unite import NearDuplicatesPolicy
from beam_jobs.prepare.staging import Staging
from beam_jobs.sharding.splits import check_fractions
from beam_jobs.sources.row import Row
from beam_jobs.sources.source import Source
from beam_jobs.storage import files
from schemas.file_names import shard_of_file, version_of_file
from schemas.fingerprints import FINGERPRINTS_VERSION
from schemas.raw_pixels import pixels_form
from schemas.receipt import Label, receipt_features
from schemas.versions import FIRST_VERSION

MAX_FORGOTTEN_IDS = 100_000  # they travel with the job, which Dataflow limits to 20 MB


@dataclass(frozen=True, kw_only=True)
class Base:
    """The dataset that a build appends to.

    Attributes:
      directory: the dataset directory.
      version: its newest version.
      completed: text of its COMPLETED.
      first_shards: split to the number of the first shard that is appended.
    """

    directory: str
    version: int
    completed: str
    first_shards: Mapping[str, int]

    def has(self, name: str) -> bool:
        """Returns whether a file may belong to it, and not to what is appended."""
        if shard := shard_of_file(name):
            split, number = shard
            return number < self.first_shards.get(split, 0)
        version = version_of_file(name)
        return version is None or version <= self.version


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of a job that makes a version of a dataset.

    Attributes:
      output: the dataset directory, on any file system that Beam knows.
      base: the dataset that gets another version; None to make a new one.
      launch: identifies this launch, so that two of them never write the same finished files.
    """

    output: str
    base: Base | None = None
    launch: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    def __post_init__(self) -> None:
        _check_is_no_root(self.output)
        if special := set("*?[").intersection(self.output):
            raise ValueError(
                f"output {self.output} holds {special.pop()!r}, which file systems take for a "
                "pattern: choose a path without *, ? and ["
            )

    @property
    def staging(self) -> Staging:
        """The directory of unfinished work."""
        return Staging(self.output)

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that all workers must reach, the output first."""
        return (self.output,)

    @property
    def version(self) -> int:
        """The version that is made."""
        return FIRST_VERSION if self.base is None else self.base.version + 1

    @property
    def finished_directory(self) -> str:
        """Folder in the staging directory of the dataset that this launch makes."""
        return self.staging.finished(self.launch)

    @property
    def request(self) -> str:
        """Digest of all options but `overwrite`, `base` and `launch`, hex SHA-256."""
        # The first and the last change nothing that is built, and a build that appends may have
        # published the version after its base.
        others = ("overwrite", "base", "launch")
        requested = {name: value for name, value in asdict(self).items() if name not in others}
        return hashlib.sha256(json.dumps(requested, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DealOptions(JobOptions):
    """Options of a job that deals records to shards.

    Attributes:
      splits: share of each split, adding up to 1.
      shards: shards of each split; None to choose by size.
      shard_size_mb: MiB a shard should hold when `shards` is None.
      shards_multiple_of: round the number of shards up to a multiple, such as the worker count.
      seed: seeds the order of records and their choice of splits.
    """

    splits: Mapping[str, float] = field(default_factory=lambda: {"train": 0.9, "validation": 0.1})
    shards: Mapping[str, int] | None = None
    shard_size_mb: int = 128
    shards_multiple_of: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_fractions(self.splits)
        super().__post_init__()
        for name in ("shard_size_mb", "shards_multiple_of"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be 0 to 2**63 - 1, got {self.seed}")
        for name, count in (self.shards or {}).items():
            if count < 1 or count % self.shards_multiple_of:
                raise ValueError(
                    f"{count} shards for split {name}: the number must be at least 1 and a "
                    f"multiple of `shards_multiple_of`, {self.shards_multiple_of}"
                )
        if self.shards is not None and self.shards.keys() != self.splits.keys():
            raise ValueError(
                f"shards are given for {', '.join(self.shards)}, but the splits are "
                f"{', '.join(self.splits)}: give a number for each split, or one for all"
            )

    @property
    def first_shards(self) -> Mapping[str, int]:
        """Split to the number of its first shard."""
        return dict.fromkeys(self.splits, 0) if self.base is None else self.base.first_shards

    def recorded(self) -> dict[str, Any]:
        """The options that shape the dataset's bytes, for its manifest."""
        return {
            "splits": dict(self.splits),
            "shards": dict(self.shards) if self.shards is not None else None,
            "shard_size_mb": self.shard_size_mb,
            "shards_multiple_of": self.shards_multiple_of,
            "seed": self.seed,
        }


class RowSource(Protocol):
    """Inputs of a job, as rows; `path` is where they come from."""

    @property
    def path(self) -> str: ...

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection[Row]:
        """Reads the rows, in no order."""


@dataclass(frozen=True, kw_only=True)
class InputOptions(JobOptions):
    """Options of a job that reads images.

    Attributes:
      source: what to read.
      image: how images are prepared.
      max_bad_fraction: fail, and publish nothing, if more of the inputs are rejected.
      overwrite: replace what is finished at `output`, once the new one is complete.
    """

    source: RowSource
    image: ImageOptions = field(default_factory=ImageOptions)
    max_bad_fraction: float = 0.05
    overwrite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        folder = self.source.path.rstrip("/") + "/"
        if self.output.startswith(folder):
            raise ValueError(
                f"output {self.output} lies in the input folder, whose files would be taken for "
                "receipts: choose another place"
            )
        if not 0 <= self.max_bad_fraction <= 1:
            raise ValueError(f"max_bad_fraction must be 0 to 1, got {self.max_bad_fraction}")

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that all workers must reach, the output first."""
        return (*super().paths, self.source.path)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(DealOptions, InputOptions):
    """Options of a build.

    Attributes:
      source: what to read.
      overwrite: replace a finished dataset at `output`, once the new one is complete.
      layout_from: where layouts come from: `column` of the table (or subfolders), `text` of the
        boxes or the `image`, of which receipts that begin alike become one layout, a `model`, or
        `none` for one layout of all receipts. But for `column`, a layout that an input names is not
        read.
      layout_model: for `model`: a model whose embeddings of images are near each other where
        receipts are of one layout.
      layout_distance: for `model`: mean cosine distance between embeddings up to which receipts are
        of one layout, more than 0 and less than 1; None for 0.5.
      merge_spellings: whether layouts whose names are spellings of one become one: names with the
        same letters and digits, and names that differ in one letter.
      near_duplicates: what becomes of receipts whose numbers, in the text of their boxes, show that
        they are one purchase: `group` keeps them in one split, `drop` also keeps only one of those
        whose numbers are equal and many, `off` does not look for them.
      compare_images: whether receipts are near-duplicates, too, if their images are nearly the
        same: encoded again, or scaled. None is dropped for that.
    """

    source: Source
    layout_from: LayoutFrom = "column"
    layout_model: SavedModel | None = None
    layout_distance: float | None = None
    merge_spellings: bool = False
    near_duplicates: NearDuplicatesPolicy = "group"
    compare_images: bool = False

    def __post_init__(self) -> None:
        receipt_features(self.source.labels)
        super().__post_init__()
        for name, kind in (
            ("layout_from", LayoutFrom),
            ("near_duplicates", NearDuplicatesPolicy),
        ):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"{name} must be one of {', '.join(get_args(kind))}, got "
                    f"{getattr(self, name)!r}: a newer tillroll may know it"
                )
        if self.layout_from == "text" and self.source.format == "folder":
            raise ValueError(
                "`layout_from` is text, and the input is a folder of images, which has no boxes: "
                "give a table that has them, or choose another way"
            )
        if self.near_duplicates == "drop" and self.source.format == "folder":
            raise ValueError(
                "`near_duplicates` is drop, and the input is a folder of images, which has no "
                "boxes with text to tell what may be dropped: leave it out, and give "
                "`compare_images` to keep copies in one split"
            )
        if self.near_duplicates == "off" and self.compare_images:
            raise ValueError(
                "`compare_images` is for near-duplicates, and `near_duplicates` is off: leave one "
                "of them out"
            )
        _check_method(self.layout_from, self.layout_model, self.layout_distance)
        if self.merge_spellings and self.layout_from != "column":
            raise ValueError(
                f"`merge_spellings` is for names that people gave, and `layout_from` is "
                f"{self.layout_from}: leave it out"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that all workers must reach, the output first."""
        return (*super().paths, *_model_paths(self.layout_model))

    @property
    def method(self) -> Method | None:
        """The way in which the build finds the layouts, by descriptors of the receipts."""
        return find_method(self.layout_from, self.layout_model, self.layout_distance)

    @property
    def takes_fingerprints(self) -> bool:
        """Tells whether near-duplicates are looked for, by the receipts' fingerprints."""
        return self.near_duplicates != "off"

    @property
    def makes_layouts(self) -> bool:
        """Tells whether records get their layouts once all inputs are known."""
        return makes_layouts(self.layout_from, merge_spellings=self.merge_spellings)

    def recorded(self) -> dict[str, Any]:
        """The options that shape the dataset's bytes, for its manifest."""
        return {
            "image": asdict(self.image),
            **pixels_form(self.image.encoding),
            "layout_from": self.layout_from,
            "layout_distance": _used_distance(self.method),
            "merge_spellings": self.merge_spellings,
            "near_duplicates": self.near_duplicates,
            "compare_images": self.compare_images,
            "fingerprints_version": FINGERPRINTS_VERSION,
            **super().recorded(),
        }


@dataclass(frozen=True, kw_only=True)
class CompactOptions(DealOptions):
    """Options of a job that deals all records of a dataset anew.

    Attributes:
      image: how the build prepared its images, as the manifest has it.
      layout_from: where layouts came from or, with `finds_layouts`, come from: `text` of the boxes
        or the `image`, as the records hold them, or a `model`.
      layout_model: as in a build.
      layout_distance: up to which distance of a model's embeddings receipts are of one layout.
      finds_layouts: whether all layouts are found anew.
      merge_spellings: whether layouts were merged.
      near_duplicates: what became of near-duplicates.
      compare_images: whether they were looked for by images, too.
      labels: the labels that the user declared.
    """

    image: Mapping[str, Any]
    layout_from: LayoutFrom = "column"
    layout_model: SavedModel | None = None
    layout_distance: float | None = None
    finds_layouts: bool = False
    merge_spellings: bool = False
    near_duplicates: NearDuplicatesPolicy = "off"
    compare_images: bool = False
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.finds_layouts:
            _check_method(self.layout_from, self.layout_model, self.layout_distance)

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that all workers must reach, the output first."""
        return (*super().paths, *_model_paths(self.layout_model))

    @property
    def method(self) -> Method | None:
        """The way in which layouts are found anew; None where they stay."""
        if not self.finds_layouts:
            return None
        return find_method(self.layout_from, self.layout_model, self.layout_distance)

    def recorded(self) -> dict[str, Any]:
        """The options that shape the dataset's bytes, for its manifest."""
        return {
            "image": dict(self.image),
            **pixels_form(self.image["encoding"]),
            "layout_from": self.layout_from,
            "layout_distance": (
                _used_distance(self.method) if self.finds_layouts else self.layout_distance
            ),
            "merge_spellings": self.merge_spellings,
            "near_duplicates": self.near_duplicates,
            "compare_images": self.compare_images,
            "fingerprints_version": FINGERPRINTS_VERSION,
            **super().recorded(),
        }


@dataclass(frozen=True, kw_only=True)
class ForgetOptions(JobOptions):
    """Options of a job that forgets receipts.

    Attributes:
      ids: ids of the receipts, each once, sorted.
      excluded: whether to forget the damaged records that `verify --exclude` has left out, too.
    """

    ids: tuple[str, ...]
    excluded: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.ids or self.excluded):
            raise ValueError("there is nothing to forget: give --ids, --excluded, or both")
        if len(self.ids) > MAX_FORGOTTEN_IDS:
            raise ValueError(
                f"{len(self.ids):,} ids are too many to forget at once: give at most "
                f"{MAX_FORGOTTEN_IDS:,}, and the others to another run"
            )


def _model_paths(model: SavedModel | None) -> tuple[str, ...]:
    return (model.path,) if model else ()


def _check_method(
    layout_from: LayoutFrom, model: SavedModel | None, distance: float | None
) -> None:
    """Raises ValueError if options about found layouts contradict each other."""
    for name, value in (("layout_model", model), ("layout_distance", distance)):
        if layout_from != "model" and value is not None:
            raise ValueError(
                f"`{name}` is for layouts that a model finds, and `layout_from` is {layout_from}: "
                "leave it out"
            )
    if distance is not None and not 0 < distance < 1:
        raise ValueError(f"layout_distance must be more than 0 and less than 1, got {distance}")
    find_method(layout_from, model)


def _used_distance(method: Method | None) -> float | None:
    """Returns the distance for the manifest, where a model finds layouts."""
    # As it is used: another default must not change how an append finds layouts.
    return method.max_distance if method and method.model else None


def _check_is_no_root(output: str) -> None:
    """Raises ValueError if a path is that of a whole bucket, container or file system."""
    scheme, separator, path = output.rpartition("://")
    if not separator:
        root = not posixpath.normpath(path or "/").strip("/")
    else:
        # The names that a path needs to be below the root: bucket and folder, but of azfs://
        # account, container and folder, and of hdfs:// a folder.
        needed = {"azfs": 3, "hdfs": 1}.get(scheme, 2)
        root = len([name for name in path.split("/") if name]) < needed
    if root:
        raise ValueError(
            f"output {output} is a whole file system or bucket, and a dataset needs a folder of "
            f"its own: choose one in it, such as {files.join(output, 'receipts')}"
        )
