"""The summary that ends a build, and the plan that a dry run shows."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from beam_jobs.forgetting.publish import ForgetReport
from beam_jobs.sharding import splits
from beam_jobs.sharding.deal import largest_deviation
from beam_jobs.shown import shortened, shown
from schemas.bins import bins_of
from schemas.layout_centroids import NO_CLUSTER
from schemas.manifest import Counts, Manifest
from schemas.predictions import ModelOutput, PredictionsManifest
from schemas.receipt import LAYOUT
from schemas.statistics import FeatureSummary, RecordSummary
from schemas.versions import FIRST_VERSION

_SHOWN_SPELLINGS = 3
_MIN_BOXES = 100  # by which their unit can be told
_USUAL_REACH = 0.7  # of an image's width and height, for the box that reaches farthest
# Pixels: of 40 characters on a line, each has 3. It is a bound of bins, so counts are exact.
_NARROW = 128
_NONE: Mapping[str, str] = MappingProxyType({})


def summary(
    manifest: Manifest,
    output: str,
    spellings: Mapping[str, str] = _NONE,
    *,
    keeps_splits: bool = False,
) -> str:
    """Summarizes a finished build: the number of its inputs, by outcome, and the whole dataset.

    Args:
      manifest: the newest version.
      output: the dataset directory.
      spellings: names of layouts that were merged, and those in their place.
      keeps_splits: whether all records have kept their splits, as in a compaction.
    """
    newest = manifest.generations[-1]
    counts = newest.counts
    size_bytes = sum(
        shard.size_bytes for split in manifest.splits.values() for shard in split.shards
    )
    layout_counts = np.array(
        [split.category_counts[LAYOUT] for split in manifest.splits.values()], np.int64
    ).T
    duplicates = f"{counts.duplicates:,}"
    if counts.duplicates_with_other_labels:
        duplicates += (
            f" ({counts.duplicates_with_other_labels:,} with other labels than the record kept)"
        )
    lines = [
        ("inputs", f"{counts.inputs:,}"),
        ("written", f"{counts.written:,}"),
        ("duplicates", duplicates),
        *_near_duplicates(counts),
        ("quarantined", _by_reason(counts.quarantined)),
    ]
    if counts.known:
        lines.append(("known", f"{counts.known:,} that the dataset had already"))
    lines.append(("size", f"{size_bytes / 1e6:,.1f} MB"))
    if counts.forgotten:
        lines.append(("forgotten", f"{counts.forgotten:,}"))
    if NO_CLUSTER in manifest.vocabularies[LAYOUT]:
        alone = layout_counts[manifest.vocabularies[LAYOUT].index(NO_CLUSTER)].sum()
        lines.append((NO_CLUSTER, f"{alone:,} receipts without text, or like no others"))
    if spellings:
        pairs = sorted(spellings.items())[:_SHOWN_SPELLINGS]
        listed = ", ".join(f"{shown(name)} is {shown(by)}" for name, by in pairs)
        more = "" if len(spellings) <= _SHOWN_SPELLINGS else ", …"
        lines.append(("spellings", f"{len(spellings):,} merged: {listed}{more}"))
    if counts.clipped_boxes:
        lines.append(("clipped", f"{counts.clipped_boxes:,} boxes that reached beyond their image"))
    fractions = manifest.build_options["splits"]
    dealt = [
        (split.dealt_layout_counts, len(split.shards))
        for generation in manifest.generations
        for split in generation.splits.values()
    ]
    lines += _deal_lines(
        list(manifest.splits),
        [len(split.shards) for split in manifest.splits.values()],
        manifest.vocabularies[LAYOUT],
        layout_counts,
        dealt,
    )
    title = f"{output} is complete"
    if manifest.version > FIRST_VERSION:
        title = f"{output} has version {manifest.version}"
    kept = "all receipts in their splits" if keeps_splits else "groups together"
    return (
        _table(title, lines)
        + _warnings(fractions, manifest.vocabularies[LAYOUT], layout_counts, kept=kept)
        + _names_as_floats(manifest.vocabularies)
    )


def warn_of_boxes(records: RecordSummary, image: Mapping[str, Any]) -> str:
    """Warns if boxes end far from the edges of all images, as those in percent do.

    Args:
      records: statistics of the records that were written.
      image: how their images were prepared, as the manifest has it.

    Returns:
      A line, or "" if the boxes look right, or are too few to tell.
    """
    reaches = []
    for side, extent in (("xmax", "width"), ("ymax", "height")):
        sides = records.features.get(f"image/object/bbox/{side}", FeatureSummary())
        if sides.values < _MIN_BOXES:
            return ""
        reaches.append((sides.maximum, extent))
    # White padding lies beside images that are narrower than others, or below wider ones.
    padded = image["encoding"] == "raw" and image["fit"] == "pad"
    reach, extent = max(reaches) if padded else min(reaches)
    if reach > _USUAL_REACH:
        return ""
    return (
        f"warning: no box reaches beyond {reach:.0%} of the {extent} of its image: boxes in "
        "percent, in per mille or of an image of another size must be written in pixels\n"
    )


def warn_of_narrow_images(records: RecordSummary, image: Mapping[str, Any]) -> str:
    """Warns if images, such as photos of long rolls, have become too narrow to be read.

    Args:
      records: statistics of the records that were written.
      image: how their images were prepared, as the manifest has it.

    Returns:
      A line for each side of which images have too little, or "".
    """
    if image["encoding"] != "jpeg":
        return ""
    width, height = (
        records.features.get(f"image/{side}", FeatureSummary()) for side in ("width", "height")
    )
    [bound] = bins_of([_NARROW])
    text = ""
    for name, side, other in (("width", width, height), ("height", height, width)):
        count = sum(images for number, images in side.bins.items() if number < bound)
        # Where no image reaches the longest side that is allowed, none was scaled.
        if count and other.maximum >= image["max_side"]:
            text += (
                f"warning: the {name} of some images is below {_NARROW} pixels, too few for small "
                f"print ({count:,}): cut photos of long receipts into parts, or raise --max-side\n"
            )
    return text


def describe_skipped(count: int) -> str:
    """Tells how many system files and folders were skipped; "" if none."""
    if not count:
        return ""
    return f"  {count:,} system files or folders were skipped, such as .DS_Store and @eaDir\n"


def _names_as_floats(vocabularies: Mapping[str, Sequence[str]]) -> str:
    """Names values that are there as a whole number and as a floating-point number."""
    text = ""
    for category, values in vocabularies.items():
        names = frozenset(values)
        if twice := sorted(name for name in names if f"{name}.0" in names and name.isdecimal()):
            name = shortened(twice[0])
            text += (
                f"warning: {category} has numbers with and without .0, such as {name} and "
                f"{name}.0: write them alike in all tables\n"
            )
    return text


def forget_summary(forgotten: ForgetReport, output: str, versions: Sequence[int]) -> str:
    """Summarizes what was forgotten; `versions` are those that there are now, ascending."""
    if not forgotten.ended:
        return f"{output} holds nothing that was to be forgotten: version {versions[-1]} stays\n"
    records = f"{forgotten.records:,}"
    if forgotten.damaged:
        records += f", of which {forgotten.damaged:,} damaged and left out before"
    shards = "1 shard was" if forgotten.shards == 1 else f"{forgotten.shards:,} shards were"
    lines = [("records", f"{records}; {shards} written anew")]
    if forgotten.rejected:
        lines.append(("rejected", f"{forgotten.rejected:,} of the quarantine"))
    if forgotten.duplicates:
        lines.append(("duplicates", f"{forgotten.duplicates:,} of the list of duplicates"))
    if forgotten.unnamed == 1:
        lines.append(("note", "1 other input was left out as a duplicate of them"))
    elif forgotten.unnamed:
        lines.append(
            ("note", f"{forgotten.unnamed:,} other inputs were left out as duplicates of them")
        )
    lines.append(("ended", f"{_versions(forgotten.ended)}, with all their files"))
    if len(versions) > 1:
        lines.append(("untouched", _versions(versions[:-1])))
    return _table(f"{output} has version {versions[-1]}, from which these are gone", lines)


def predict_summary(manifest: PredictionsManifest, output: str) -> str:
    """Summarizes finished predictions."""
    files = [name for name in manifest.files if name.startswith("predictions-")]
    size_bytes = sum(manifest.files[name].size_bytes for name in files)
    lines = [
        ("inputs", f"{manifest.inputs:,}"),
        ("predicted", f"{manifest.predicted:,}"),
        ("quarantined", _by_reason(manifest.quarantined)),
    ]
    if manifest.excluded:
        lines.append(("excluded", f"{manifest.excluded:,} damaged records of the dataset"))
    lines += [
        ("files", f"{len(files):,}, {size_bytes / 1e6:,.1f} MB"),
        ("values", ", ".join(_described(one) for one in manifest.outputs)),
    ]
    return _table(f"{output} is complete", lines)


def _described(output: ModelOutput) -> str:
    sides = ["?" if side < 0 else str(side) for side in output.shape]
    return f"{output.name} {output.dtype}" + (f" [{', '.join(sides)}]" if sides else "")


def _versions(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"version{'s' if len(numbers) > 1 else ''} {listed}"


def plan_summary(outline: Mapping[str, Any], fractions: Mapping[str, float], output: str) -> str:
    """Summarizes what a build would do, from the plan file of a dry run."""
    layout_counts = np.array(outline["counts"], np.int64)
    rejected = sum(outline["rejected"].values())
    new = outline["inputs"] - rejected - outline["known"]
    lines = [
        ("inputs", f"{outline['inputs']:,}"),
        ("to write", f"{new:,}, less duplicates and unreadable images"),
        ("to quarantine", _by_reason(outline["rejected"])),
    ]
    if outline["known"]:
        lines.append(("known", f"{outline['known']:,} with an id that the dataset has already"))
    lines += [
        *_deal_lines(
            list(fractions),
            outline["shards"],
            outline["layouts"],
            layout_counts,
            list(zip(layout_counts.T, outline["shards"], strict=True)),
        ),
    ]
    return _table(f"plan for {output} (no image was read)", lines) + _warnings(
        fractions, outline["layouts"], layout_counts + np.array(outline["old_counts"], np.int64)
    )


def _deal_lines(
    names: Sequence[str],
    shards: Sequence[int],
    layouts: Sequence[str],
    counts: splits.IntArray,
    dealt: Sequence[tuple[splits.IntArray, int]],
) -> list[tuple[str, str]]:
    """Lines about splits and layouts; `dealt` are (layout counts, shards) dealt by themselves."""
    lines = [
        (name, f"{records:,} records in {count:,} shard{'s' if count > 1 else ''}")
        for name, records, count in zip(names, counts.sum(axis=0).tolist(), shards, strict=True)
    ]
    totals = counts.sum(axis=1)
    if not len(totals):
        return lines
    most_common, least_common = int(totals.argmax()), int(totals.argmin())
    single = int((totals == 1).sum())
    largest = max(largest_deviation(layout_counts, count) for layout_counts, count in dealt)
    return [
        *lines,
        ("layouts", f"{len(layouts):,}, {single:,} of them with a single receipt"),
        ("most common", f"{shortened(layouts[most_common])}: {totals[most_common]:,}"),
        ("least common", f"{shortened(layouts[least_common])}: {totals[least_common]:,}"),
        ("fairness", f"at most {largest:.6g} of a record off a layout's fair share, in any shard"),
    ]


def _warnings(
    fractions: Mapping[str, float],
    layouts: Sequence[str],
    counts: splits.IntArray,
    *,
    kept: str = "groups together",
) -> str:
    """Names shares that were relaxed to keep groups, or splits, and empty splits."""
    share = np.array(list(fractions.values()))
    off = splits.deviations(counts, share)
    text = ""
    # Rounding puts a layout less than one receipt off its share; what is off by more was kept so.
    if (off >= 1).any():
        layout, split = divmod(int(off.argmax()), off.shape[1])
        wanted = counts[layout].sum() * share[split]
        text += (
            f"warning: keeping {kept} put {int((off >= 1).any(axis=1).sum()):,} of "
            f"{len(layouts):,} layouts off their split shares by a receipt or more; most of all "
            f"{shortened(layouts[layout])}, {counts[layout, split]:,} instead of {wanted:.1f} in "
            f"{list(fractions)[split]}\n"
        )
    for name, records in zip(fractions, counts.sum(axis=0).tolist(), strict=True):
        if not records:
            text += (
                f"warning: split {name} is empty: most layouts have too few receipts to share "
                "(a layout's only receipt goes to train)\n"
            )
    return text


def _near_duplicates(counts: Counts) -> list[tuple[str, str]]:
    if not counts.near_duplicates:
        return []
    pairs = "1 pair" if counts.near_duplicates == 1 else f"{counts.near_duplicates:,} pairs"
    return [("near-duplicates", f"{pairs}, listed in versions/…/duplicates")]


def _by_reason(reasons: Mapping[str, int]) -> str:
    total = f"{sum(reasons.values()):,}"
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{reason} {count:,}" for reason, count in ranked)
    return f"{total}: {listed}" if listed else total


def _table(title: str, lines: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in lines)
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in lines)]) + "\n"
