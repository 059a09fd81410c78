"""Lookups made from records, as they are read from a shard or written to one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_jobs.prepare.references import hash_words, labels_hash
from schemas.fingerprints import Fingerprints
from schemas.lookup import RecordLookup
from schemas.receipt import Feature

Hashes = tuple[int, ...]  # two words of the id, two of the pixels, labels, group


def record_hashes(
    features: Sequence[Feature], values: Mapping[str, Sequence[Any]], *, seed: int
) -> Hashes:
    """Hashes one record.

    Args:
      features: `schemas.receipt.labels_features` of the dataset.
      values: the record, as `schemas.example.parse_example` gives it.
      seed: seeds the hash of the id.
    """
    pixels = int(values["image/key/pixels"][0], 16)
    group = values["receipt/group"][0]
    return (
        *hash_words(values["image/source_id"][0], seed=seed),
        pixels >> 64,
        pixels & 0xFFFFFFFFFFFFFFFF,
        labels_hash(features, {one.name: _plain(one, values[one.name]) for one in features}),
        hash_words(group)[0] if group else 0,
    )


def make_lookup(hashes: Sequence[Hashes], fingerprints: Fingerprints | None = None) -> RecordLookup:
    """Makes the lookup of records from the hashes and the fingerprints of each."""
    columns = np.array(hashes, np.uint64).reshape(-1, 6)
    return RecordLookup(
        key=columns[:, :2],
        pixels=columns[:, 2:4],
        labels=columns[:, 4],
        group=columns[:, 5],
        fingerprints=fingerprints,
    )


def _plain(feature: Feature, stored: Sequence[Any]) -> Any:
    """The value of a feature as `encode_example` takes it."""
    values = [value.decode() for value in stored] if feature.dtype == "string" else list(stored)
    return values if feature.ragged else values[0]
