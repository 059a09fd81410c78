"""Layouts whose names are spellings of one become one layout."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from beam_jobs.layouts.spellings import merge_spellings
from beam_jobs.options import Base
from beam_jobs.prepare.references import References, encode_values, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from beam_jobs.writing.output import read_manifest, read_spellings
from schemas.receipt import LAYOUT


def merge_layouts(
    references: beam.PCollection[tuple[int, str]],
    *,
    base: Base | None,
    staging: Staging,
) -> tuple[beam.PCollection[tuple[int, str]], AsSingleton]:
    """Merges the layouts whose names are spellings of one.

    One worker holds the names of all layouts, as when vocabularies are made.

    Args:
      references: (bucket, path of its References).
      base: the dataset that is appended to: its layouts stay, and so do its spellings.
      staging: where the staging files go.

    Returns:
      (bucket, path of its References) with the names that stay, and each name that does not, with
      the one that takes its place.
    """
    counts = (
        references
        | "CountLayouts" >> beam.MapTuple(lambda _, path: _counts(_read(path)))
        | "SumLayouts" >> beam.CombineGlobally(_sum).as_singleton_view()
    )
    spellings = AsSingleton(
        references.pipeline
        | "OnceNamed" >> beam.Impulse()
        | "MergeSpellings" >> beam.Map(_merge, counts=counts, base=base)
    )
    merged = references | "Respell" >> beam.Map(_respell, spellings=spellings, staging=staging)
    return merged, spellings


def _merge(_: bytes, *, counts: Mapping[str, int], base: Base | None) -> dict[str, str]:
    """Finds the spellings among the names of new receipts, also of names that a dataset has."""
    if base is None:
        return merge_spellings(counts)
    manifest = read_manifest(base.directory, base.version)
    # A name without receipts stands for one that was forgotten.
    receipts = np.sum([split.layout_counts for split in manifest.splits.values()], axis=0)
    layouts = manifest.vocabularies[LAYOUT]
    known = [layouts[id_] for id_ in np.flatnonzero(receipts).tolist()]
    earlier = read_spellings(base.directory, manifest)
    return merge_spellings(counts, known, earlier.names if earlier else {})


def _read(path: str) -> References:
    return References.from_bytes(files.read(path))


def _counts(references: References) -> dict[str, int]:
    values, codes = references.categories[LAYOUT]
    used, counts = np.unique(codes, return_counts=True)
    return {values[code]: count for code, count in zip(used.tolist(), counts.tolist(), strict=True)}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _respell(
    located: tuple[int, str], *, spellings: Mapping[str, str], staging: Staging
) -> tuple[int, str]:
    bucket, path = located
    references = _read(path)
    values, codes = references.categories[LAYOUT]
    if spellings.keys().isdisjoint(values):
        return located
    names = [spellings.get(values[code], values[code]) for code in codes.tolist()]
    categories = {**references.categories, LAYOUT: encode_values(names)}
    return bucket, stage_references(replace(references, categories=categories), staging)
