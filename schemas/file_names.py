"""Names of the files of a dataset directory.

    COMPLETED                         the versions, written last
    versions/00001/manifest.json      version 1: its records, and where they lie
    versions/00001/schema.pbtxt       its features, for TensorFlow Data Validation
    versions/00001/statistics.pb      its statistics, for TensorFlow Data Validation
    versions/00001/summary.json       numbers of the records it added, for later versions to add to
    versions/00003/summary-00001.json the same of version 1, without what version 3 has forgotten
    versions/00001/layouts.npz        centroids of the layouts that were found, if they were
    versions/00001/least_certain.json receipts that are farthest from these centroids
    versions/00001/spellings.json     names of layouts that were merged into others, if they were
    versions/00001/quarantine/…       inputs that version 1 rejected
    versions/00001/duplicates/…       inputs that version 1 left out as duplicates, near-duplicates
    versions/00001/excluded.json      damaged records that its readers leave out, if there are any
    receipts-train-00000.tfrecord     shard 0 of the split "train"
    receipts-train-00000.index.npz    its record index
    receipts-train-00000.lookup.npz   hashes by which a later build knows its records
    receipts-train-00000.summary.json the statistics of its records, exact
    receipts-train-00000.idx          its record index, for DALI
    features.json, dataset_info.json  the newest version, for TensorFlow Datasets

Shards of a split are numbered over all versions, and no number is given twice. So a file name says
neither how many shards there are nor which version they belong to: that is what manifests are for.
"""

import re

COMPLETED = "COMPLETED"
TFDS_FEATURES = "features.json"
TFDS_INFO = "dataset_info.json"
TFDS_SHARD_TEMPLATE = "receipts-{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"  # a shard, to TFDS
QUARANTINE = "quarantine"
DUPLICATES = "duplicates"
NEAR_DUPLICATES = "near_duplicates"
_SCHEMA = "schema.pbtxt"
_STATISTICS = "statistics.pb"
_SUMMARY = "summary.json"
_MANIFEST = "manifest.json"
_EXCLUDED = "excluded.json"
_CENTROIDS = "layouts.npz"
_LEAST_CERTAIN = "least_certain.json"
_SPELLINGS = "spellings.json"
_SHARD, _INDEX, _LOOKUP, _DALI_INDEX = ".tfrecord", ".index.npz", ".lookup.npz", ".idx"
_SHARD_SUMMARY = ".summary.json"

# Numbers are padded to five digits, and have more from 100,000 on.
_STEM = r"receipts-(?P<split>[a-z0-9_]+)-(?P<number>\d{5,})"
_INDEX_FILE = re.compile(_STEM + re.escape(_INDEX))
_SHARD_FILE = re.compile(_STEM + re.escape(_SHARD))
_SHARD_FILES = re.compile(rf"{_STEM}(\.tfrecord|\.(index|lookup)\.npz|\.summary\.json|\.idx)")
_VERSION_FILE = re.compile(
    r"versions/(?P<version>\d{5,})/("
    r"manifest\.json|schema\.pbtxt|statistics\.pb|summary(-\d{5,})?\.json|excluded\.json|layouts\.npz"
    r"|spellings\.json|least_certain\.json"
    r"|quarantine/rejected\.(tfrecord|jsonl)-\d{5,}-of-\d{5,}"
    r"|duplicates/(near_)?duplicates\.jsonl-\d{5,}-of-\d{5,})"
)


def shard_name(split: str, number: int) -> str:
    """File name of a shard."""
    return f"receipts-{split}-{number:05d}{_SHARD}"


def index_name(shard: str) -> str:
    """File name of the record index of a shard, from that of the shard."""
    return shard.removesuffix(_SHARD) + _INDEX


def lookup_name(shard: str) -> str:
    """File name of the hashes of the records of a shard, from that of the shard."""
    return shard.removesuffix(_SHARD) + _LOOKUP


def dali_index_name(shard: str) -> str:
    """File name of the index that DALI reads, from that of the shard."""
    return shard.removesuffix(_SHARD) + _DALI_INDEX


def shard_summary_name(shard: str) -> str:
    """File name of the statistics of the records of a shard, from that of the shard."""
    return shard.removesuffix(_SHARD) + _SHARD_SUMMARY


def shard_number(name: str) -> int:
    """Number of a shard in its split, from its file name: 7 of receipts-train-00007.tfrecord."""
    return int(name.removesuffix(_SHARD).rpartition("-")[2])


def version_file(version: int, name: str) -> str:
    """Path of a file that belongs to a version."""
    return f"versions/{version:05d}/{name}"


def manifest_name(version: int) -> str:
    """Path of the manifest of a version."""
    return version_file(version, _MANIFEST)


def schema_name(version: int) -> str:
    """Path of the schema of a version."""
    return version_file(version, _SCHEMA)


def statistics_name(version: int) -> str:
    """Path of the statistics of a version."""
    return version_file(version, _STATISTICS)


def summary_name(version: int, of: int | None = None) -> str:
    """Path of the summary of the records that a version added.

    Args:
      version: the version whose file it is.
      of: the version that added the records, if `version` has only forgotten some of them.
    """
    return version_file(version, _SUMMARY if of is None else f"summary-{of:05d}.json")


def centroids_name(version: int) -> str:
    """Path of the centroids of the layouts that a version has found."""
    return version_file(version, _CENTROIDS)


def least_certain_name(version: int) -> str:
    """Path of the list of the receipts whose found layouts are the least certain."""
    return version_file(version, _LEAST_CERTAIN)


def spellings_name(version: int) -> str:
    """Path of the list of the names that a version has merged into others."""
    return version_file(version, _SPELLINGS)


def excluded_name(version: int) -> str:
    """Path of the list of the records that readers of a version leave out."""
    return version_file(version, _EXCLUDED)


def shard_of_file(name: str) -> tuple[str, int] | None:
    """Split and number of the shard that a file belongs to; None for a file of no shard."""
    found = _SHARD_FILES.fullmatch(name)
    return (found["split"], int(found["number"])) if found else None


def version_of_file(name: str) -> int | None:
    """Number of the version that a file belongs to; None for a file of no version."""
    found = _VERSION_FILE.fullmatch(name)
    return int(found["version"]) if found else None


def is_shard_file(name: str) -> bool:
    """Returns whether a file name is that of a shard."""
    return _SHARD_FILE.fullmatch(name) is not None


def is_index_file(name: str) -> bool:
    """Returns whether a file name is that of the record index of a shard."""
    return _INDEX_FILE.fullmatch(name) is not None


def is_summary_file(name: str) -> bool:
    """Returns whether a path is that of a summary of the records that a version added."""
    return re.fullmatch(r"versions/\d{5,}/summary(-\d{5,})?\.json", name) is not None


def is_listing(name: str) -> bool:
    """Returns whether a path is that of JSON lines about rejected inputs or duplicates."""
    return re.fullmatch(r"versions/\d{5,}/.+\.jsonl-\d{5,}-of-\d{5,}", name) is not None


def is_dataset_file(name: str) -> bool:
    """Returns whether tillroll writes a file of this path, relative to a dataset directory."""
    return bool(
        _SHARD_FILES.fullmatch(name)
        or _VERSION_FILE.fullmatch(name)
        or name in (COMPLETED, TFDS_FEATURES, TFDS_INFO)
    )
