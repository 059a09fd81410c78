"""`excluded.json`: the damaged records of a finished dataset that readers leave out.

The shards stay as they are: a record is left out by its position in its shard. So whoever reads the
file beside the manifest leaves out the same records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from schemas import versioned_json
from schemas.manifest import Manifest

FORMAT = "tillroll-excluded"
FORMAT_VERSION = 1
_ANEW = "delete it, and run python -m beam_jobs.verify DIRECTORY --exclude again"


@dataclass(frozen=True, kw_only=True)
class ExcludedRecord:
    """One record that is left out.

    Attributes:
      position: its row in the index of its shard, from 0.
      id: the receipt's id.
      offset: byte at which its frame starts in the shard.
      fault: what is wrong with it, for people.
    """

    position: int
    id: str
    offset: int
    fault: str

    def __post_init__(self) -> None:
        for name, type_ in (("position", int), ("id", str), ("offset", int), ("fault", str)):
            if type(value := getattr(self, name)) is not type_:
                raise TypeError(f"{name} {value!r} is no {type_.__name__}")


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """What is left out of one dataset.

    Attributes:
      dataset_digest: `Manifest.digest` of the dataset.
      shards: shard name to its records that are left out, in the order of their positions.
    """

    dataset_digest: str
    shards: Mapping[str, tuple[ExcludedRecord, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(records) for records in self.shards.values())

    def positions(self, shard_name: str) -> tuple[int, ...]:
        """Positions in a shard that are left out, ascending; none for a shard that is whole."""
        return tuple(each.position for each in self.shards.get(shard_name, ()))

    def adding(self, shard_name: str, records: Iterable[ExcludedRecord]) -> Self:
        """With more records of one shard; a position that is left out already stays as it is."""
        known = {each.position: each for each in records}
        known.update({each.position: each for each in self.shards.get(shard_name, ())})
        merged = tuple(known[position] for position in sorted(known))
        shards = {**self.shards, shard_name: merged} if merged else self.shards
        return type(self)(dataset_digest=self.dataset_digest, shards=shards)

    def to_json(self) -> str:
        """The file's text; equal exclusions give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes, manifest: Manifest) -> Self:
        """Reads the exclusions of the dataset that a manifest describes.

        Raises:
          ValueError: the text is no such file, of a newer format version, or belongs to another
            dataset.
        """
        values = versioned_json.from_text(
            text, format_name=FORMAT, newest_version=FORMAT_VERSION, repair=_ANEW
        )
        try:
            if values["dataset_digest"] != manifest.digest:
                raise ValueError(
                    f"belongs to the dataset with digest {values['dataset_digest']}, the manifest "
                    f"beside it has {manifest.digest}: {_ANEW}"
                )
            shards = {
                name: [ExcludedRecord(**each) for each in records]
                for name, records in values["shards"].items()
            }
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"damaged {FORMAT} file: {error!r}; {_ANEW}") from error
        _check_places(shards, manifest)
        excluded = cls(dataset_digest=manifest.digest)
        for name, records in shards.items():
            excluded = excluded.adding(name, records)
        return excluded


def _check_places(shards: Mapping[str, list[ExcludedRecord]], manifest: Manifest) -> None:
    sizes = {each.name: each.records for split in manifest.splits.values() for each in split.shards}
    for name, records in shards.items():
        if name not in sizes:
            raise ValueError(f"leaves out records of {name!r}, no shard of this dataset: {_ANEW}")
        for each in records:
            if not 0 <= each.position < sizes[name]:
                raise ValueError(
                    f"leaves out record {each.position} of {name}, whose records are 0 to "
                    f"{sizes[name] - 1}: {_ANEW}"
                )
        if len({each.position for each in records}) != len(records):
            raise ValueError(f"leaves out a record of {name} more than once: {_ANEW}")
