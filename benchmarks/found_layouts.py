"""Layouts that are found by text, beside those that people gave.

`python -m benchmarks.found_layouts` draws receipts, builds a dataset of them without their layouts
(`--layout-from text`), and compares what was found with what was drawn. With a folder of SROIE, it
does the same for its receipts, whose layouts are their companies. Beside it stands the plain
clustering that a data scientist would begin with: tf-idf of the 2- to 4-grams of the first five
lines, and average linkage of cosine distances up to 0.3. It needs all pairs of receipts.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_jobs.running.import_messages import hide_import_messages

if __name__ in ("__main__", "__mp_main__"):  # the program, and the processes that draw
    hide_import_messages()

from beam_jobs.sources.sroie import IMAGE_FOLDER, sroie_row
from beam_jobs.storage import files
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import table
from benchmarks.receipts.corpus import generate
from schemas.command_line import CommandParser
from schemas.index import RecordIndex
from schemas.manifest import Manifest
from schemas.receipt import LAYOUT

_LINES = 5
_GRAMS = (2, 3, 4)
_MAX_DISTANCE = 0.3

IntArray = npt.NDArray[np.int64]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = _parser().parse(argv)
    with tempfile.TemporaryDirectory(prefix="found-layouts-") as name:
        folder = Path(name)
        drawn = generate(folder / "drawn", count=args.count, size="small")
        lines = drawn.read_text().splitlines()
        receipts = {row["id"]: (row["layout"], row["boxes"]) for row in map(json.loads, lines)}
        text = {id_: [box["text"] for box in boxes] for id_, (_, boxes) in receipts.items()}
        given = {id_: layout for id_, (layout, _) in receipts.items()}
        rows = _rows("drawn receipts", drawn, folder / "found", given, text)
        if args.sroie:
            images = files.list_files(f"{args.sroie}/{IMAGE_FOLDER}/*.jpg")
            sroie = [sroie_row(image, folder=args.sroie, labels=()) for image in images]
            given = {row.id: row.categories[LAYOUT] for row in sroie}
            text = {row.id: [box[4] for box in row.boxes] for row in sroie}
            rows += _rows("SROIE", args.sroie, folder / "found-sroie", given, text)
    print(table(rows))
    return 0


def _parser() -> CommandParser:
    parser = benchmark_parser("found_layouts", "", __doc__)
    parser.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="receipts that are drawn (default: %(default)s)",
    )
    parser.add_argument("--sroie", metavar="DIR", help="a folder in the form of SROIE")
    return parser


def _rows(
    name: str,
    receipts: Path | str,
    output: Path,
    given: dict[str, str],
    text: dict[str, list[str]],
) -> list[dict[str, object]]:
    """Finds the layouts of receipts in two ways; returns how near they are to those given."""
    command = ["-m", "beam_jobs.build", "--input", str(receipts), "--output", str(output)]
    subprocess.run(
        [sys.executable, *command, "--quiet", "--layout-from", "text"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = layout_of(output)
    wanted = _codes([given[id_] for id_ in found])
    plain = cluster_plainly([text[id_] for id_ in found])
    return [
        {"receipts": name, "by": by, "layouts": len(set(wanted.tolist())), **score(wanted, codes)}
        for by, codes in (
            ("--layout-from text", _codes(list(found.values()))),
            ("plain clustering", plain),
        )
    ]


def layout_of(directory: Path) -> dict[str, str]:
    """Reads the layout of each receipt of a dataset, by id."""
    manifest = Manifest.from_json((directory / "versions/00001/manifest.json").read_bytes())
    layouts: dict[str, str] = {}
    for split in manifest.splits.values():
        for shard in split.shards:
            index = RecordIndex.from_bytes((directory / shard.index_name).read_bytes())
            names = [manifest.vocabularies[LAYOUT][code] for code in index.categories[LAYOUT]]
            layouts |= dict(zip(index.ids(), names, strict=True))
    return layouts


def cluster_plainly(receipts: Sequence[Sequence[str]]) -> IntArray:
    """Clusters receipts by the tf-idf of their first lines; returns the cluster of each."""
    # Imported here, as it adds a filter of warnings.
    from scipy.cluster.hierarchy import fcluster, linkage

    counts = [_grams(lines[:_LINES]) for lines in receipts]
    place = {gram: at for at, gram in enumerate(sorted(set().union(*counts)))}
    values = np.zeros((len(counts), len(place)), np.float32)
    for row, grams in enumerate(counts):
        values[row, [place[gram] for gram in grams]] = list(grams.values())
    values *= np.log((1 + len(values)) / (1 + (values > 0).sum(axis=0))) + 1
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    distance = np.maximum(1 - values @ values.T, 0)
    tree = linkage(distance[np.triu_indices(len(values), 1)].astype(np.float64), "average")
    return fcluster(tree, _MAX_DISTANCE, "distance").astype(np.int64)


def _grams(lines: Sequence[str]) -> Counter[str]:
    text = re.sub(r"\s+", " ", " ".join(lines).lower())
    return Counter(text[at : at + n] for n in _GRAMS for at in range(len(text) - n + 1))


def score(given: IntArray, found: IntArray) -> dict[str, object]:
    """Compares two partitions of the same receipts, int64 [n].

    The adjusted Rand index (Hubert and Arabie 1985) counts pairs of receipts that are together in
    both, 0 on average for partitions by chance. The V-measure (Rosenberg and Hirschberg 2007) is
    the harmonic mean of homogeneity and completeness.
    """
    both = np.zeros((given.max() + 1, found.max() + 1))
    np.add.at(both, (given, found), 1)
    of_given, of_found, n = both.sum(axis=1), both.sum(axis=0), len(given)
    together = _pairs(both)
    by_chance = _pairs(of_given) * _pairs(of_found) / math.comb(n, 2)
    most = (_pairs(of_given) + _pairs(of_found)) / 2
    rand = (together - by_chance) / (most - by_chance) if most != by_chance else 1.0
    entropies = _entropy(of_given) + _entropy(of_found)
    v_measure = 2 * (entropies - _entropy(both)) / entropies if entropies else 1.0
    return {
        "found": int((of_found > 0).sum()),
        "adjusted Rand index": round(float(rand), 3),
        "V-measure": round(float(v_measure), 3),
    }


def _pairs(counts: npt.NDArray[np.float64]) -> float:
    """Number of pairs of receipts in the same part."""
    return float((counts * (counts - 1) / 2).sum())


def _entropy(counts: npt.NDArray[np.float64]) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _codes(names: Sequence[str]) -> IntArray:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


if __name__ == "__main__":
    sys.exit(main())
