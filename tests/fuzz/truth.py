"""A reading of dataset directories that shares no code with the package that it judges."""

import hashlib
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from tensorflow.core.example.example_pb2 import Example

_SIDE_FILES = {
    ".tfrecord": "crc32c",
    ".idx": "dali_index_crc32c",
    ".index.npz": "index_crc32c",
    ".lookup.npz": "lookup_crc32c",
    ".summary.json": "summary_crc32c",
}
_SHARED = {"COMPLETED", "dataset_info.json", "features.json"}  # by all versions


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record: its split, its shard and its place there, and its features."""

    split: str
    shard: str
    position: int
    offset: int
    length: int
    features: Mapping[str, list[Any]]

    def text(self, name: str) -> str:
        """Returns the only value of a feature as text."""
        (value,) = self.features[name]
        return value.decode()


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a dataset.

    Attributes:
      manifest: its manifest.
      excluded: shards and positions of the damaged records that readers leave out.
      records: all records by id.
      files: names of its files.
    """

    manifest: Mapping[str, Any]
    excluded: frozenset[tuple[str, int]]
    records: dict[str, Record] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def split(self, name: str) -> dict[str, Record]:
        """Returns the records of a split that readers see."""
        return {
            id_: record
            for id_, record in self.records.items()
            if record.split == name and (record.shard, record.position) not in self.excluded
        }


def read_versions(directory: Path) -> dict[int, Version]:
    """Reads all versions of a dataset, and checks all that can be checked without its inputs.

    Raises:
      AssertionError: a file contradicts another one.
    """
    completed = json.loads((directory / "COMPLETED").read_text())
    versions = {}
    for entry in completed["versions"]:
        name = f"versions/{entry['number']:05d}/manifest.json"
        data = (directory / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["manifest_sha256"]
        versions[entry["number"]] = _read_version(directory, json.loads(data), name)
    assert versions
    return versions


def check_no_strays(directory: Path, versions: Mapping[int, Version]) -> None:
    """Checks that a dataset holds the files of its versions, and no others."""
    named = _SHARED.union(*(version.files for version in versions.values()))
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert not there - named


def _read_version(directory: Path, manifest: Mapping[str, Any], name: str) -> Version:
    excluded = Path(name).with_name("excluded.json")
    version = Version(manifest=manifest, excluded=_read_excluded(directory / excluded))
    version.files.update((name, str(excluded)))
    _check_files(directory, manifest["files"], version)
    for generation in manifest["generations"]:
        _check_files(directory, generation["files"], version)
        for split, part in generation["splits"].items():
            _read_split(directory, split, part, version)
        counts = generation["counts"]
        quarantined = sum(counts["quarantined"].values())
        accounted = ("written", "duplicates", "known", "forgotten")
        assert counts["inputs"] == sum(counts[name] for name in accounted) + quarantined
    pixels = [record.text("image/key/pixels") for record in version.records.values()]
    assert len(set(pixels)) == len(pixels), "two records show the same image"
    splits_of_group = defaultdict(set)
    for record in version.records.values():
        if group := record.text("receipt/group"):
            splits_of_group[group].add(record.split)
    assert all(len(splits) == 1 for splits in splits_of_group.values())
    return version


def _read_excluded(path: Path) -> frozenset[tuple[str, int]]:
    shards = json.loads(path.read_text())["shards"] if path.exists() else {}
    return frozenset(
        (shard, record["position"]) for shard, records in shards.items() for record in records
    )


def _check_files(directory: Path, files: Mapping[str, Any], version: Version) -> None:
    for name, sums in files.items():
        data = (directory / name).read_bytes()
        assert len(data) == sums["size_bytes"], name
        assert google_crc32c.value(data) == sums["crc32c"], name
        version.files.add(name)


def _read_split(directory: Path, split: str, part: Mapping[str, Any], version: Version) -> None:
    """Reads the shards of a split, and checks their files and that they are dealt fairly."""
    vocabularies = version.manifest["vocabularies"]
    dealt: list[Counter[int]] = []
    found = {category: Counter() for category in vocabularies}
    for shard in part["shards"]:
        stem = shard["name"].removesuffix(".tfrecord")
        for suffix, checksum in _SIDE_FILES.items():
            data = (directory / f"{stem}{suffix}").read_bytes()
            assert google_crc32c.value(data) == shard[checksum], f"{stem}{suffix}"
            version.files.add(f"{stem}{suffix}")
        records = list(_read_shard(directory, split, shard["name"]))
        assert len(records) == shard["records"]
        _check_index(directory / f"{stem}.index.npz", records, vocabularies)
        lines = [f"{record.offset} {record.length}\n" for _, record in records]
        assert (directory / f"{stem}.idx").read_text() == "".join(lines)
        dealt.append(Counter(shard["forgotten"]))  # their places were dealt, too
        for id_, record in records:
            assert id_ not in version.records, f"{id_} comes twice"
            version.records[id_] = record
            dealt[-1].update(record.features["receipt/layout_id"])
            for category, values in vocabularies.items():
                (number,) = record.features[f"receipt/{category}_id"]
                assert values[number] == record.text(f"receipt/{category}")
                found[category][number] += 1
    for category, counts in part["category_counts"].items():
        assert counts == [found[category][number] for number in range(len(counts))]
    _check_fair(dealt)


def _check_fair(dealt: Sequence[Counter[int]]) -> None:
    """Checks that each layout is within one record of its share in each shard, and sizes too."""
    totals = sum(dealt, Counter())
    for layout, total in totals.items():
        assert all(abs(shard[layout] - total / len(dealt)) < 1 for shard in dealt), layout
    sizes = [shard.total() for shard in dealt]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def _check_index(
    path: Path,
    records: Sequence[tuple[str, Record]],
    vocabularies: Mapping[str, Sequence[str]],
) -> None:
    """Checks the record index of a shard against its records."""
    index = np.load(path)
    assert index["offset"].tolist() == [record.offset for _, record in records]
    assert index["length"].tolist() == [record.length for _, record in records]
    assert index["id_text"].tobytes().decode() == "".join(id_ for id_, _ in records)
    lengths = [len(id_.encode()) for id_, _ in records]
    assert index["id_end"].tolist() == np.cumsum(lengths, dtype=int).tolist()
    columns = {"height": "image/height", "width": "image/width"}
    columns |= {f"category/{name}": f"receipt/{name}_id" for name in vocabularies}
    for column, feature in columns.items():
        assert index[column].tolist() == [record.features[feature][0] for _, record in records]


def _read_shard(directory: Path, split: str, name: str) -> Iterator[tuple[str, Record]]:
    data = (directory / name).read_bytes()
    for position, (offset, payload) in enumerate(frames(data)):
        features = {
            key: list(getattr(value, value.WhichOneof("kind") or "bytes_list").value)
            for key, value in Example.FromString(payload).features.feature.items()
        }
        record = Record(
            split=split,
            shard=name,
            position=position,
            offset=offset,
            length=len(payload) + 16,
            features=features,
        )
        image = features["image/encoded"][0]
        assert hashlib.sha256(image).hexdigest() == record.text("image/key/sha256")
        yield record.text("image/source_id"), record


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the payload of each frame of a TFRecord file."""
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        payload = data[offset + 12 : offset + 12 + length]
        assert struct.unpack_from("<I", data, offset + 8)[0] == _masked(data[offset : offset + 8])
        assert struct.unpack_from("<I", data, offset + 12 + length)[0] == _masked(payload)
        yield offset, payload
        offset += length + 16


def _masked(data: bytes) -> int:
    """Computes a masked CRC-32C as TensorFlow's tsl/lib/hash/crc32c.h defines it."""
    checksum = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
