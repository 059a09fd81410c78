"""The records of a dataset directory as its own shards have them, and how a reader's differ.

Manifest and shards are read by `schemas`, in plain Python. Values are lists, as a
`tf.train.Example` stores them: strings in UTF-8, a single value in a list of one.
"""

import io
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.peers.stored import read_manifest, stored_records
from schemas.example import parse_example
from schemas.manifest import Manifest

PIXELS = "pixels"  # beside the features' names, in what a reader gives
ID, IMAGE = "image/source_id", "image/encoded"
_BOX = "image/object/bbox/"
_LABELS = "receipt/"
# Decoders of JPEG files round differently. Two receipts are some 50 levels apart.
_LEVELS = 2.0

Values = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The records that a reader gave, beside those that it should.

    Attributes:
      expected, read: records that there are, and that the reader gave.
      images: decoded images that are right.
      boxes: boxes of which all that was read is right.
      labels: labels that are right, the ids of categories included.
      faults: a sentence for whatever differs.
    """

    expected: int
    read: int
    images: int = 0
    boxes: int = 0
    labels: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Records of a split in the newest version of a local dataset directory.

    Attributes:
      directory: the dataset directory.
      split: the split.
      manifest: the manifest of the newest version.
      records: id to the values of each feature, in the order of the shards.
    """

    directory: Path
    split: str
    manifest: Manifest
    records: Mapping[str, Values]

    @classmethod
    def of(cls, directory: Path, split: str) -> Self:
        """Reads a directory.

        Raises:
          ValueError: a record is damaged, or there are not as many as the manifest says.
        """
        manifest = read_manifest(str(directory))
        stored = manifest.splits[split]
        parsed = [
            parse_example(manifest.features, serialized)
            for serialized in stored_records(str(directory), stored)
        ]
        records = {values[ID][0].decode(): values for values in parsed}
        if not len(records) == len(parsed) == stored.records:
            raise ValueError(
                f"split {split!r} of {directory} holds {len(parsed)} records of {len(records)} "
                f"ids, its manifest says {stored.records}"
            )
        return cls(directory=directory, split=split, manifest=manifest, records=records)

    @property
    def shards(self) -> list[Path]:
        """Paths of the shards, in order."""
        return [self.directory / shard.name for shard in self.manifest.splits[self.split].shards]

    def part(self, start: int, stop: int) -> Mapping[str, Values]:
        """Returns the records from one position, in the order of the shards, to before another."""
        return dict(list(self.records.items())[start:stop])


def compare(
    expected: Mapping[str, Values],
    given: Iterable[Mapping[str, Any]],
    *,
    without: Sequence[str] = (),
) -> Comparison:
    """Holds every value that a reader gives against the expected ones.

    Args:
      expected: id to the values of each feature.
      given: the records of the reader, in any order: feature name to a value or an array. With
        `PIXELS`, uint8 [height, width, channels], which stand for the image as a file, too.
      without: features that the reader does not give.
    """
    faults: list[str] = []
    seen: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for values in given:
        [id_] = _as_stored(values[ID])
        name = id_.decode()
        seen[name] += 1
        if name not in expected:
            faults.append(f"{name} was read, and is not among the expected records")
            continue
        wrong = _wrong(expected[name], values, without)
        faults += [f"{name}: {sentence}" for sentence in wrong.values()]
        right["images"] += PIXELS in values and PIXELS not in wrong
        right["labels"] += sum(key.startswith(_LABELS) and key not in wrong for key in values)
        if not any(key.startswith(_BOX) for key in wrong):
            right["boxes"] += len(expected[name][f"{_BOX}xmin"])
    faults += [f"{name} was read {count} times" for name, count in seen.items() if count > 1]
    faults += [f"{name} was not read" for name in expected if name not in seen]
    return Comparison(
        expected=len(expected), read=seen.total(), faults=tuple(faults), **dict(right)
    )


def pixels(values: Values) -> npt.NDArray[np.uint8]:
    """Decodes the image of a record with Pillow; uint8 [height, width, 3], [..., 1] if raw gray."""
    [stored] = values[IMAGE]
    if values["image/format"] == [b"raw"]:
        shape = [values[f"image/{name}"][0] for name in ("height", "width", "channels")]
        return np.frombuffer(stored, np.uint8).reshape(shape)
    with Image.open(io.BytesIO(stored)) as image:
        return np.asarray(image.convert("RGB"))


def _wrong(expected: Values, values: Mapping[str, Any], without: Sequence[str]) -> dict[str, str]:
    """Returns feature name to a sentence, for whatever differs in a record."""
    wrong = {}
    for name, wanted in expected.items():
        if name in values:
            found = _as_stored(values[name])
            if found != list(wanted):
                wrong[name] = f"{name} is {reprlib.repr(found)}, should be {reprlib.repr(wanted)}"
        elif name not in without and not (name == IMAGE and PIXELS in values):
            wrong[name] = f"{name} was not read"
    if PIXELS in values and (sentence := _wrong_pixels(pixels(expected), values[PIXELS])):
        wrong[PIXELS] = sentence
    return wrong


def _wrong_pixels(wanted: npt.NDArray[np.uint8], found: npt.NDArray[Any]) -> str | None:
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"the image is {found.dtype} {found.shape}, should be {wanted.dtype} {wanted.shape}"
    difference = float(np.abs(found.astype(np.int16) - wanted).mean())
    return f"the image is {difference:.1f} levels off" if difference > _LEVELS else None


def _as_stored(value: Any) -> list[Any]:
    """Makes a reader's value a list, and its strings UTF-8."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    listed = plain if isinstance(plain, list) else [plain]
    return [each.encode() if isinstance(each, str) else each for each in listed]


def splits(directory: Path) -> Iterator[Expected]:
    """Yields the records of each split that has some."""
    for name, split in read_manifest(str(directory)).splits.items():
        if split.records:
            yield Expected.of(directory, name)
