"""`excluded.json`: the damaged records of a finished dataset that readers leave out.

The shards stay as they are: a record is left out by its position in its shard. All readers read the
file beside the manifest, so all leave out the same records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from schemas import versioned_json
from schemas.manifest import Manifest

FORMAT = "tillroll-excluded"
FORMAT_VERSION = 1
_REPAIR = "delete it, and run python -m beam_jobs.verify DIRECTORY --exclude again"


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
                raise TypeError(f"{name} {value!r} is not of type {type_.__name__}")


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """Records left out of one dataset.

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
        return tuple(record.position for record in self.shards.get(shard_name, ()))

    def adding(self, shard_name: str, records: Iterable[ExcludedRecord]) -> Self:
        """Returns a copy with more records of one shard; records that it has stay the same."""
        by_position = {record.position: record for record in records}
        # The older ones win: the file tells why a record was left out in the first place.
        by_position |= {record.position: record for record in self.shards.get(shard_name, ())}
        merged = tuple(by_position[position] for position in sorted(by_position))
        shards = {**self.shards, shard_name: merged} if merged else self.shards
        return type(self)(dataset_digest=self.dataset_digest, shards=shards)

    def to_json(self) -> str:
        """The file's text; equal exclusions give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes, manifest: Manifest) -> Self:
        """Reads the exclusions of the dataset that a manifest describes.

        Raises:
          ValueError: the text is not such a file, is of a newer format version, or belongs to
            another dataset.
        """
        values = versioned_json.from_text(
            text, format_name=FORMAT, newest_version=FORMAT_VERSION, repair=_REPAIR
        )
        try:
            if values["dataset_digest"] != manifest.digest:
                raise ValueError(
                    f"belongs to the dataset with digest {values['dataset_digest']}, the manifest "
                    f"beside it has {manifest.digest}: {_REPAIR}"
                )
            shards = {
                name: [ExcludedRecord(**fields) for fields in records]
                for name, records in values["shards"].items()
            }
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"damaged {FORMAT} file: {error!r}; {_REPAIR}") from error
        _check_positions(shards, manifest)
        excluded = cls(dataset_digest=manifest.digest)
        for name, records in shards.items():
            excluded = excluded.adding(name, records)
        return excluded


def _check_positions(shards: Mapping[str, list[ExcludedRecord]], manifest: Manifest) -> None:
    sizes = {
        shard.name: shard.records for split in manifest.splits.values() for shard in split.shards
    }
    for name, records in shards.items():
        if name not in sizes:
            raise ValueError(
                f"leaves out records of {name!r}, which is not a shard of this dataset: {_REPAIR}"
            )
        for record in records:
            if not 0 <= record.position < sizes[name]:
                raise ValueError(
                    f"leaves out record {record.position} of {name}, whose records are 0 to "
                    f"{sizes[name] - 1}: {_REPAIR}"
                )
        if len({record.position for record in records}) != len(records):
            raise ValueError(f"leaves out a record of {name} more than once: {_REPAIR}")
