"""Near-duplicates: how many are found, how many of them are right, and what the search costs.

`python -m benchmarks.near_duplicates` draws receipts, a few of which are photographed twice, and
builds a dataset of them. With a folder of SROIE, each receipt is saved four times more: encoded
again, scaled, cropped by 3 %, and turned by 2°. Beside the numbers of receipts, it compares their
images as `--compare-images` does where there is no text, and takes perceptual hashes as imagededup
does (pHash, 64 bits, up to 10 of which may differ). Then each transcript of SROIE comes a second
time, with errors as OCR engines make them, and tickets of a car park do, of which all numbers but
the time and the ticket's own are the same. At last it looks for near-duplicates among receipts that
are nothing but numbers, with the classes of the build.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from beam_jobs.running.import_messages import hide_import_messages

if __name__ in ("__main__", "__mp_main__"):  # the program, and the processes that it measures in
    hide_import_messages()

from beam_jobs.find_near_duplicates import compare, partitions, write_pieces
from beam_jobs.near_duplicates.candidates import NO_WORD, receipt_words
from beam_jobs.near_duplicates.receipts import FingerprintedReceipts
from beam_jobs.near_duplicates.text_fingerprint import text_fingerprint
from beam_jobs.near_duplicates.unite import NEW, NearPair, unite
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Box
from beam_jobs.sources.sroie import IMAGE_FOLDER, sroie_row
from beam_jobs.storage import files
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import in_new_process, table
from benchmarks.plan_scale import peak_mb
from benchmarks.receipts.corpus import generate
from schemas.command_line import CommandParser
from schemas.fingerprints import HASH_WORDS, TEXT_WORDS, Fingerprints
from schemas.index import RecordIndex
from schemas.manifest import Manifest

_HASH_BITS = 10  # that may differ
_BUCKET = 10_000
_SHOPS = 1000
_NUMBERS = 30
_SHARE_TWICE = 0.05
_CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.,:/-"
_LOOK_ALIKE = {
    **{"0": "O6D8", "1": "I7l4", "2": "Z7", "3": "8", "4": "91A", "5": "S6", "6": "85G", "7": "1T"},
    **{"8": "B360", "9": "40", "O": "0", "I": "1l", "S": "5", "B": "8", "Z": "2", "G": "6"},
    **{" ": [""], ".": [",", " "], ",": ".", ":": ".;", "/": "1I", "-": "~"},
}

Pair = frozenset[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    with tempfile.TemporaryDirectory(prefix="near-duplicates-") as name:
        folder = Path(name)
        drawn = generate(
            folder / "drawn", count=args.count, size="small", second_photos=_SHARE_TWICE
        )
        rows = [_rows("drawn receipts", drawn, folder)]
        if args.sroie:
            rows.append(_rows("SROIE", saved_again(args.sroie, folder / "sroie"), folder))
        print(table([row for rows_of in rows for row in rows_of]))
        if args.sroie:
            print(table(misread_rows("SROIE", transcripts(args.sroie), args.seeds)))
        print(table(misread_rows("tickets", tickets(1000), args.seeds, share_twice=_SHARE_TWICE)))
        for count in args.receipts:
            costs = in_new_process(search, f"{folder}/staging-{count}", count)
            print(f"{count:,} receipts of numbers alone, in one process")
            for figure, value in costs.items():
                print(f"  {figure:<26} {value:10.2f}")
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("near_duplicates", "", __doc__)
    parser.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="receipts that are drawn (default: %(default)s)",
    )
    parser.add_argument("--sroie", metavar="DIR", help="a folder in the form of SROIE")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=(1, 2),
        metavar="SEED",
        help="seeds of the errors in transcripts (default: 1 2)",
    )
    parser.add_argument(
        "--receipts",
        type=int,
        nargs="+",
        default=(100_000, 1_000_000),
        metavar="N",
        help="receipts of numbers alone, one search for each (default: 100000 1000000)",
    )
    return parser


def _rows(name: str, receipts: Path, folder: Path) -> list[dict[str, object]]:
    """Builds datasets of a table; returns how well each way finds its near-duplicates."""
    rows = [json.loads(line) for line in receipts.read_text().splitlines()]
    purchase = {row["id"]: row.get("photo_of") or row["id"] for row in rows}
    images = {row["id"]: receipts.parent / row["image"] for row in rows}
    without_text = receipts.with_name("without_text.jsonl")
    without_text.write_text("".join(f"{json.dumps({**row, 'boxes': []})}\n" for row in rows))
    result: list[dict[str, object]] = []
    for by, table_, options in (
        ("numbers", receipts, []),
        ("images", without_text, ["--compare-images"]),
    ):
        output = folder / f"{receipts.parent.name}-{by}"
        found = _pairs_of_build(table_, output, options)
        split = split_of(output)
        parted = sum(len({split[id_] for id_ in pair if id_ in split}) > 1 for pair in found)
        result.append({"receipts": name, "by": by, **score(found, purchase), "parted": parted})
    found = hashed_pairs(images)
    return [*result, {"receipts": name, "by": "pHash", **score(found, purchase), "parted": "-"}]


def _pairs_of_build(receipts: Path, output: Path, options: Sequence[str]) -> set[Pair]:
    """Builds a dataset of a table; returns the near-duplicates that it lists."""
    command = ["-m", "beam_jobs.build", "--input", str(receipts), "--output", str(output)]
    subprocess.run(
        [sys.executable, *command, *options, "--quiet"], check=True, stdout=subprocess.DEVNULL
    )
    return {
        frozenset((line["id"], line["near_duplicate_of"]))
        for file in sorted(output.glob("versions/00001/duplicates/near_duplicates.jsonl-*"))
        for line in map(json.loads, file.read_text().splitlines())
    }


def score(found: Iterable[Pair], purchase: Mapping[str, str]) -> dict[str, object]:
    """Compares pairs with the truth.

    Recall is the share of photos, beside the first one of each purchase, that are connected with
    another photo of it; precision is the share of pairs that are of one purchase.

    Args:
      found: pairs of ids.
      purchase: id to what was bought; equal for photos of one purchase.
    """
    found = set(found)
    right = {pair for pair in found if len({purchase[id_] for id_ in pair}) == 1}
    again = len(purchase) - len(set(purchase.values()))
    root = {id_: id_ for id_ in purchase}

    def root_of(id_: str) -> str:
        while root[id_] != id_:
            id_ = root[id_]
        return id_

    for pair in right:
        first, second = sorted(map(root_of, pair))
        root[second] = first
    united = sum(root[id_] != id_ for id_ in root)
    return {
        "again": again,
        "recall": round(united / max(again, 1), 4),
        "pairs": len(found),
        "precision": round(len(right) / max(len(found), 1), 4),
    }


def split_of(directory: Path) -> dict[str, str]:
    """Reads the split of each receipt of a dataset, by id."""
    manifest = Manifest.from_json((directory / "versions/00001/manifest.json").read_bytes())
    return {
        id_: name
        for name, split in manifest.splits.items()
        for shard in split.shards
        for id_ in RecordIndex.from_bytes((directory / shard.index_name).read_bytes()).ids()
    }


def hashed_pairs(images: Mapping[str, Path]) -> set[Pair]:
    """Returns the pairs of images whose perceptual hashes differ in at most ten bits of 64."""
    ids = list(images)
    hashes = np.array([perceptual_hash(images[id_]) for id_ in ids])
    found = set()
    for row, own in enumerate(hashes):
        near = np.flatnonzero((hashes[row + 1 :] != own).sum(axis=1) <= _HASH_BITS)
        found |= {frozenset((ids[row], ids[row + 1 + other])) for other in near.tolist()}
    return found


def perceptual_hash(path: Path) -> npt.NDArray[np.bool_]:
    """Hashes an image to 64 bits: the signs of its 8 × 8 lowest frequencies about their median."""
    # Imported here, as it adds a filter of warnings.
    from scipy.fft import dct

    with Image.open(path) as image:
        gray = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), float)
    low = dct(dct(gray, axis=0), axis=1)[:8, :8]
    return (low > np.median(low)).ravel()


def saved_again(sroie: str, folder: Path) -> Path:
    """Saves each receipt of SROIE and four variants of it; returns their table."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for metadata in files.list_files(f"{sroie}/{IMAGE_FOLDER}/*.jpg"):
        row = sroie_row(metadata, folder=sroie, labels=())
        with Image.open(row.uri) as opened:
            image = opened.convert("RGB")
        width, height = image.size
        left, top = round(0.03 * width), round(0.03 * height)
        inner = (left, top, width - left, height - top)
        variants = {
            "": (image, 95),
            "encoded": (image, 40),
            "scaled": (image.resize((width // 2, height // 2)), 90),
            "cropped": (image.crop(inner), 90),
            "turned": (image.rotate(2, fillcolor="white"), 90),
        }
        for variant, (changed, quality) in variants.items():
            id_ = f"{row.id}-{variant}" if variant else row.id
            changed.save(folder / "images" / f"{id_}.jpg", quality=quality)
            # What is cropped away is not read; where the rest lies does not matter here.
            lines = [box[4] for box in row.boxes if variant != "cropped" or _within(box, inner)]
            box = {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}
            rows.append(
                {
                    "id": id_,
                    "image": f"images/{id_}.jpg",
                    "layout": row.categories["layout"],
                    "boxes": [{**box, "text": line} for line in lines],
                    "photo_of": row.id if variant else "",
                }
            )
    path = folder / "receipts.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def _within(box: Box, frame: tuple[int, int, int, int]) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return frame[0] <= x <= frame[2] and frame[1] <= y <= frame[3]


Lines = Sequence[str]
Change = Callable[[Lines, random.Random], Lines]


def misread(lines: Lines, rng: random.Random, *, rate: float) -> Lines:
    """Makes errors in a text: of the characters that are wrong, 70 % are others, 15 % are lost."""

    def character(right: str) -> str:
        if right == " " or rng.random() >= rate:
            return right
        kind = rng.random()
        replacement = rng.choice(_CHARACTERS)
        return replacement if kind < 0.7 else "" if kind < 0.85 else right + replacement

    return ["".join(map(character, line)) for line in lines]


def confuse(lines: Lines, rng: random.Random, *, rate: float) -> Lines:
    """Makes errors in a text: 75 % are characters that look alike, and lost spaces."""

    def character(right: str) -> str:
        if rng.random() >= rate:
            return right
        kind = rng.random()
        if kind < 0.75:
            return rng.choice(_LOOK_ALIKE.get(right, "eoa"))
        return "" if kind < 0.9 else right + rng.choice(" .'1I")

    return ["".join(map(character, line)) for line in lines]


def _decimal_comma(lines: Lines, _: random.Random) -> Lines:
    return [re.sub(r"(\d)\.(\d\d)\b", r"\1,\2", line) for line in lines]


def _no_currency(lines: Lines, _: random.Random) -> Lines:
    return [re.sub(r"(RM|\$) ?(?=\d)", "", line) for line in lines]


def _cropped(lines: Lines, _: random.Random) -> Lines:
    return lines[: round(0.85 * len(lines))]


def _lines_missing(lines: Lines, rng: random.Random) -> Lines:
    return [line for line in lines if rng.random() >= 0.05]


def _reversed(lines: Lines, _: random.Random) -> Lines:
    return lines[::-1]


def _unchanged(lines: Lines, _: random.Random) -> Lines:
    return lines


# What becomes of the first transcript of a receipt, and of the second one.
CHANGES: Mapping[str, tuple[Change, Change]] = {
    "none": (_unchanged, _unchanged),
    "2 % wrong in one": (_unchanged, partial(misread, rate=0.02)),
    **{
        f"{rate:.1%} wrong in both": (partial(misread, rate=rate), partial(misread, rate=rate))
        for rate in (0.002, 0.005, 0.01, 0.02, 0.03, 0.05)
    },
    "1 % confused in both": (partial(confuse, rate=0.01), partial(confuse, rate=0.01)),
    "2 % confused in both": (partial(confuse, rate=0.02), partial(confuse, rate=0.02)),
    "decimal comma": (_unchanged, _decimal_comma),
    "no currency": (_unchanged, _no_currency),
    "last 15 % cropped": (_unchanged, _cropped),
    "5 % of lines missing in both": (_lines_missing, _lines_missing),
    "lines in reverse order": (_unchanged, _reversed),
}


def misread_rows(
    name: str, texts: Sequence[Lines], seeds: Sequence[int], *, share_twice: float = 1
) -> list[dict[str, object]]:
    """Compares texts with second transcripts of some of them; returns a row for each change.

    Args:
      name: what the texts are.
      texts: the right transcripts.
      seeds: seeds of the errors; figures are of all of them together.
      share_twice: share of the texts that have a second transcript.
    """
    rows = []
    for change, (first, second) in CHANGES.items():
        purchase: dict[str, str] = {}
        pairs: set[Pair] = set()
        sure: set[Pair] = set()
        for seed in seeds:
            rng = random.Random(seed)
            again = rng.sample(range(len(texts)), round(share_twice * len(texts)))
            lines = [first(text, rng) for text in texts]
            lines += [second(texts[number], rng) for number in again]
            ids = [f"{seed}-{number}" for number in range(len(lines))]
            purchase |= dict(zip(ids, [*ids[: len(texts)], *(ids[n] for n in again)], strict=True))
            for pair in _paired(ids, lines):
                keys = frozenset((pair.first.id, pair.second.id))
                pairs.add(keys)
                if pair.sure:
                    sure.add(keys)
        wrong = sum(len({purchase[id_] for id_ in pair}) > 1 for pair in sure)
        scores = score(pairs, purchase)
        rows.append({"receipts": name, "errors": change, **scores, "sure, wrong": wrong})
    return rows


def _paired(ids: Sequence[str], texts: Sequence[Lines]) -> list[NearPair]:
    """Finds near-duplicates among some texts."""
    fingerprints = Fingerprints.of([text_fingerprint(text) for text in texts])
    words = receipt_words(fingerprints)
    number = np.arange(len(ids))
    receipts = FingerprintedReceipts(
        key=np.stack([_hash(number), _hash(number + len(ids))], axis=1),
        group=np.zeros(len(ids), np.uint64),
        split=np.full(len(ids), NEW, np.int32),
        ids=tuple(ids),
        fingerprints=fingerprints,
        words=words,
    )
    return receipts.pairs(np.ones(words.shape, bool))


def transcripts(sroie: str) -> list[Lines]:
    """Reads the lines of all receipts of SROIE."""
    return [
        [box[4] for box in sroie_row(metadata, folder=sroie, labels=()).boxes]
        for metadata in files.list_files(f"{sroie}/{IMAGE_FOLDER}/*.jpg")
    ]


def tickets(count: int) -> list[Lines]:
    """Makes the texts of tickets of a car park with a fixed price, one every two minutes."""
    return [
        [
            "CITY PARKING SDN BHD (123456-X)",
            "12 JALAN RAJA 50480 KUALA LUMPUR",
            "TEL 03-2612345 GST 000123456789",
            f"{1 + number // 250:02d}/03/2018 {8 + number % 250 // 30:02d}:{number % 30 * 2:02d}",
            f"TICKET NO {70412 + number:06d}",
            "TOTAL RM 2.00",
        ]
        for number in range(count)
    ]


def search(folder: str, count: int) -> dict[str, float]:
    """Looks for near-duplicates among receipts of numbers alone, as the steps of a build do.

    Args:
      folder: where the staging files go.
      count: number of receipts; one in twenty comes again, without its last number.

    Returns:
      Seconds, megabytes and counts, by their names.
    """
    staging = Staging(folder)
    started = time.perf_counter()
    ranges: dict[int, list[files.ByteRange]] = {}
    parts = partitions(count)
    for first in range(0, count, _BUCKET):
        receipts = _numbered(first, min(_BUCKET, count - first), count)
        for part, where in write_pieces(receipts, receipts.words != NO_WORD, parts, staging):
            ranges.setdefault(part, []).append(where)
    written_s = time.perf_counter() - started
    found: set[NearPair] = set()
    for part in sorted(ranges):
        found.update(compare((part, ranges[part]), count))
    compared_s = time.perf_counter() - started
    decided = unite(found, {})
    return {
        "seconds to write": written_s,
        "seconds to compare": compared_s - written_s,
        "seconds to unite": time.perf_counter() - started - compared_s,
        "microseconds a receipt": (time.perf_counter() - started) / count * 1e6,
        "peak MB": peak_mb(),
        "staged MB": sum(length for part in ranges.values() for *_, length in part) / 1e6,
        "photographed again": count - _purchases(count),
        "pairs": len(found),
        "grouped": len(decided.groups),
    }


def _purchases(count: int) -> int:
    return round(count / (1 + _SHARE_TWICE))


def _numbered(first: int, count: int, total: int) -> FingerprintedReceipts:
    """Makes some of `total` receipts; each shop prints five numbers on all of its receipts."""
    number = np.arange(first, first + count)
    purchases = _purchases(total)
    purchase = number % purchases
    numbers = np.empty((count, _NUMBERS), np.uint64)
    for column in range(_NUMBERS):
        # Prices are few, so that receipts have many in common; date and number are their own.
        kinds = (purchase % _SHOPS) * 31 if column < 5 else purchase * 31
        spread = _hash(kinds + column)
        if column < 7:
            numbers[:, column] = np.uint64(10**8) + spread % np.uint64(10**8)
        else:
            numbers[:, column] = np.uint64(10**5 + 10**3 * column) + spread % np.uint64(10**3)
    counts = np.where(number < purchases, _NUMBERS, _NUMBERS - 1).astype(np.int32)
    kept = np.arange(_NUMBERS) < counts[:, None]
    fingerprints = Fingerprints(
        counts=counts,
        numbers=numbers[kept].astype(np.uint32),
        text_bits=np.zeros((count, TEXT_WORDS), np.uint64),
        images=np.zeros((count, HASH_WORDS), np.uint64),
    )
    key = np.stack([_hash(number), _hash(number + total)], axis=1)
    return FingerprintedReceipts(
        key=key,
        group=np.zeros(count, np.uint64),
        split=np.full(count, NEW, np.int32),
        ids=tuple(f"receipt-{one:08d}" for one in number.tolist()),
        fingerprints=fingerprints,
        words=receipt_words(fingerprints),
    )


def _hash(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Spreads numbers evenly over 64 bits."""
    words = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (words ^ (words >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(3)


if __name__ == "__main__":
    sys.exit(main())
