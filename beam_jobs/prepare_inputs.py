"""The beginning of a job that reads images: from the source to prepared buckets."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsList, AsSingleton, TaggedOutput

from beam_jobs.errors import BuildError
from beam_jobs.find_layouts import KeyedDescriptors
from beam_jobs.find_near_duplicates import (
    fingerprinted_receipts,
    partitions,
    write_pieces,
    write_words,
)
from beam_jobs.near_duplicates.candidates import NO_WORD
from beam_jobs.options import Base, BuildOptions, InputOptions
from beam_jobs.prepare.known import (
    Known,
    OldShards,
    find_ids,
    known_by_chunk,
    write_hashes,
)
from beam_jobs.prepare.prepared_chunk import PreparedChunk, Rejected
from beam_jobs.prepare.references import References, stage_references
from beam_jobs.prepare.repeated_ids import NO_REPEATS, Repeats, check_ids, sum_repeats
from beam_jobs.prepare.row_file import RowFile, WriteRows, read_chunks
from beam_jobs.prepare.staging import write_marker
from beam_jobs.shard_plan import check_rejections, count_and_example
from beam_jobs.sharding.duplicates import Pixels
from beam_jobs.shown import shortened
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from beam_jobs.storage.files import ByteRange
from beam_jobs.writing.chunk_summary import ChunkSummary
from beam_jobs.writing.output import read_manifest

# A bucket, where its rows lie, and the lookups (as bytes) of those that the dataset has already.
Bucket = tuple[int, Iterable[ByteRange], Iterable[bytes]]


def list_old_shards(
    pipeline: beam.Pipeline, base: Base, label: str = "OldShards"
) -> beam.PCollection[OldShards]:
    """Lists the shards of the newest version of a dataset; `label` begins the steps' labels."""
    return (
        pipeline
        | f"{label}Once" >> beam.Impulse()
        | label
        >> beam.FlatMap(
            lambda _: OldShards.of(base.directory, read_manifest(base.directory, base.version))
        )
        | f"{label}Spread" >> beam.Reshuffle()
    )  # OldShards


def read_buckets(
    pipeline: beam.Pipeline,
    options: InputOptions,
    *,
    seed: int,
    check_output: Callable[[], None] | None = None,
    old: beam.PCollection[OldShards] | None = None,
) -> tuple[beam.PCollection[Bucket], AsSingleton]:
    """Reads the source: the rows of each bucket, and the number of all rows.

    Args:
      pipeline: the pipeline.
      options: what to read, and limits.
      seed: seeds the hash of the ids.
      check_output: raises BuildError where the output must not be written; None where it is not.
      old: shards of the dataset that is appended to.
    """
    rows = options.source.read(pipeline)  # Row
    row_files = rows | "WriteRows" >> beam.ParDo(WriteRows(options.staging, seed))  # RowFile
    inputs = _count_inputs(rows, row_files, options, check_output)
    located = row_files | "IntoBuckets" >> beam.FlatMap(RowFile.ranges, inputs=inputs)
    # (bucket, ByteRange)
    if old is None:
        grouped = located | "ByBucket" >> beam.GroupByKey()  # (bucket, Iterable[ByteRange])
        buckets = grouped | "NothingKnown" >> beam.MapTuple(_bucket).with_output_types(Bucket)
    else:
        wanted = row_files | "HashIds" >> beam.Map(
            lambda file: write_hashes(options.staging, file.hashes())
        )  # path
        found = old | "FindIds" >> beam.FlatMap(find_ids, wanted=AsList(wanted), inputs=inputs)
        # (bucket, lookup as bytes)
        buckets = (
            (located, found)
            | "ByBucketWithKnown" >> beam.CoGroupByKey()
            | "WithKnown" >> beam.MapTuple(_with_known).with_output_types(Bucket)
        )
    # Flink and Spark give keys to workers by their hash, so one may get twice as many as another.
    return buckets | "SpreadBuckets" >> beam.Reshuffle(), inputs


def _bucket(bucket: int, ranges: Iterable[ByteRange]) -> Bucket:
    return bucket, ranges, ()


def _with_known(bucket: int, parts: tuple[Iterable[ByteRange], Iterable[bytes]]) -> Bucket:
    return bucket, *parts


def count_reasons(rejected: beam.PCollection[Rejected]) -> AsDict:
    """Counts the rejected inputs: reason to (their number, an example)."""
    return AsDict(
        rejected
        | "CountReasons"
        >> beam.Map(lambda row: (row.reason, (1, f"{shortened(row.id)}: {row.message}")))
        | "PerReason" >> beam.CombinePerKey(count_and_example)
    )


def _count_inputs(
    rows: beam.PCollection[Row],
    row_files: beam.PCollection[RowFile],
    options: InputOptions,
    check_output: Callable[[], None] | None,
) -> AsSingleton:
    """Counts all rows; what can't become a dataset ends the build here, before an image is read."""
    reasons = AsDict(
        rows
        | "RejectedRows" >> beam.FlatMap(_rejection)
        | "PerRowReason" >> beam.CombinePerKey(count_and_example)
    )
    counts = (
        row_files
        | "RowsOfFile" >> beam.Map(lambda file: (len(file), file.repeats))
        | "CountRows" >> beam.CombineGlobally(_sum_counts).as_singleton_view()
    )
    return AsSingleton(
        rows.pipeline
        | "OnceRead" >> beam.Impulse()
        | "CheckInputs"
        >> beam.Map(
            _check_inputs,
            counts=counts,
            reasons=reasons,
            options=options,
            check_output=check_output,
        )
    )


def _sum_counts(parts: Iterable[tuple[int, Repeats]]) -> tuple[int, Repeats]:
    counts, repeats = zip((0, NO_REPEATS), *parts, strict=True)
    return sum(counts), sum_repeats(repeats)


def _check_inputs(
    _: bytes,
    *,
    counts: tuple[int, Repeats],
    reasons: Mapping[str, tuple[int, str]],
    options: InputOptions,
    check_output: Callable[[], None] | None,
) -> int:
    """Checks the output directory and the rows, notes the number of rows and returns it.

    Raises:
      BuildError: the output must not be written, or too few rows can be prepared.
    """
    count, repeats = counts
    if check_output:
        # Also here: a staged job may run long after it was checked.
        check_output()
        write_marker(options.staging)
    if not count:
        raise BuildError(
            f"no receipts found in {options.source.path}: check --input and --input-format"
        )
    files.write(options.staging.inputs, json.dumps(count).encode())  # for the progress bar
    check_rejections(count, reasons, options.max_bad_fraction)
    check_ids(count, repeats, max_bad_fraction=options.max_bad_fraction)
    return count


def _rejection(row: Row) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yields (reason, (1, an example)) for a row that is rejected already."""
    if row.problem:
        reason, message = row.problem
        yield reason, (1, f"{shortened(row.id)}: {message}")


class Preparer(Protocol):
    """Prepares chunks."""

    def prepare(self, number: int, serialized_rows: Iterable[bytes], known: Known) -> PreparedChunk:
        """Prepares one chunk; see `ChunkPreparer`."""


def prepare(preparer: Preparer, inputs: AsSingleton, options: InputOptions) -> beam.PTransform:
    """Prepares buckets: Bucket to (bucket, path of its References).

    Tagged outputs: "pixels" (Pixels), "rejected" (Rejected), "summaries" (ChunkSummary) and, of
    what is appended, "hashes" (paths of pixels' hashes and of groups). Where layouts are to be
    found, also "descriptors" (bucket, path of its KeyedDescriptors). Where near-duplicates are
    looked for, also "pieces" of `write_pieces` and, of what is appended, "words" (paths of
    `write_words`).
    """
    staging, appends = options.staging, options.base is not None
    finds_layouts = isinstance(options, BuildOptions) and options.method is not None
    takes_fingerprints = isinstance(options, BuildOptions) and options.takes_fingerprints

    def prepare_bucket(located: Bucket, inputs: int) -> Iterator[Any]:
        bucket, ranges, lookups = located
        rows = read_chunks(bucket, ranges, inputs)
        if not rows:
            return  # the ranges held rows of its neighbors only
        known = known_by_chunk(lookups, inputs)
        chunks = [
            preparer.prepare(chunk, rows.pop(chunk), known.get(chunk, {})) for chunk in sorted(rows)
        ]
        references = References.concatenate([chunk.references for chunk in chunks])
        pixels = Pixels.of(bucket, chunks)
        yield bucket, stage_references(references, staging)
        yield TaggedOutput("pixels", pixels)
        if appends:
            groups = references.group[references.group > 0]
            paths = (write_hashes(staging, pixels.pixels[:, 0]), write_hashes(staging, groups))
            yield TaggedOutput("hashes", paths)
        if finds_layouts:
            descriptors = KeyedDescriptors.of_chunks(chunks)
            yield TaggedOutput("descriptors", (bucket, descriptors.staged(staging)))
        if takes_fingerprints:
            receipts = fingerprinted_receipts(chunks)
            counts, parts = receipts.words != NO_WORD, partitions(inputs)
            for piece in write_pieces(receipts, counts, parts, staging):
                yield TaggedOutput("pieces", piece)
            if appends:
                yield TaggedOutput("words", write_words(receipts, staging))
        for chunk in chunks:
            yield TaggedOutput("summaries", ChunkSummary.of(chunk))
            yield from (TaggedOutput("rejected", rejected) for rejected in chunk.rejected)

    return beam.FlatMap(prepare_bucket, inputs=inputs).with_outputs(
        "pixels",
        "rejected",
        "summaries",
        "hashes",
        "descriptors",
        "pieces",
        "words",
        main="references",
    )
