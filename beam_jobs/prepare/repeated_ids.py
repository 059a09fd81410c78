"""Ids that several rows have: counted before an image is read, and told apart in a chunk.

All rows with one id belong to one chunk, which one worker holds in memory. A column that does not
hold ids, such as one with the same value in every row, must therefore end the build early.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.shown import shown
from beam_jobs.sources.row import Row

Repeats = tuple[int, bytes]  # rows with an id that a row before has, and one of them as bytes
NO_REPEATS: Repeats = (0, b"")


def sum_repeats(parts: Iterable[Repeats]) -> Repeats:
    """Adds up the counts, and keeps the last example in the order of bytes."""
    counts, examples = zip(NO_REPEATS, *parts, strict=True)
    return sum(counts), max(examples)


def check_ids(inputs: int, repeats: Repeats, *, max_bad_fraction: float) -> None:
    """Checks that enough inputs have an id that no other has.

    Args:
      inputs: number of inputs.
      repeats: inputs whose id another input of the same row file has.
      max_bad_fraction: the share of inputs that may be rejected.

    Raises:
      BuildError: more inputs than that will be rejected for their ids.
    """
    count, example = repeats
    if count > max_bad_fraction * inputs:
        raise BuildError(
            f"at least {count:,} of {inputs:,} inputs have the id of another input, such as "
            f"{shown(Row.from_bytes(example).id)}, more than --max-bad-fraction "
            f"{max_bad_fraction:g} allows; no image was read. Give every receipt its own id, or "
            "name the column that holds the ids with --columns id=NAME."
        )


def unique_rows(serialized_rows: Iterable[bytes]) -> Iterator[Row]:
    """Yields rows in a fixed order; of rows with the same id, all but the first are rejected.

    A row that is rejected already comes last among them, so it takes the id from no other row.
    """
    rows = [(Row.from_bytes(line), line) for line in serialized_rows]
    # The line, too, for rows that differ in neither: the first must be the same on any run.
    rows.sort(key=lambda pair: (pair[0].id, pair[0].problem is not None, pair[1]))
    seen: dict[str, str] = {}
    for row, _ in rows:
        if row.id in seen and row.problem is None:
            message = (
                f"id {shown(row.id)} is taken by {seen[row.id]}: give every receipt its own id"
            )
            yield replace(row, problem=(Reason.DUPLICATE_ID, message))
        else:
            yield row
        seen.setdefault(row.id, row.uri)
