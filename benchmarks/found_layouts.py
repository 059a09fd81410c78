"""Layouts that are found by text and by images, beside those that people gave.

`python -m benchmarks.found_layouts` draws receipts, builds datasets of them without their layouts
(`--layout-from text` and `image`), and compares what was found with what was drawn. With a folder
of SROIE, it does the same for its receipts, whose layouts are their companies. Beside them stands
the plain clustering that a data scientist would begin with: average linkage of all pairs of
receipts, by the tf-idf of the 2- to 4-grams of their first five lines, and by their perceptual
hashes (64 bits, as imagededup makes them), each at the distance that turns out to be best. With
`--train-steps`, a model learns embeddings of the same receipts, without their layouts, and the
build finds layouts by them (`--layout-from model`).
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from beam_jobs.running.import_messages import hide_import_messages

if __name__ in ("__main__", "__mp_main__"):  # the program, and the processes that draw
    hide_import_messages()

from beam_jobs.layouts.image import image_descriptors
from beam_jobs.layouts.text import text_descriptors
from beam_jobs.sources.sroie import IMAGE_FOLDER, sroie_row
from beam_jobs.storage import files
from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import table
from benchmarks.near_duplicates import perceptual_hash
from benchmarks.receipts.corpus import generate
from benchmarks.receipts.scene import SIZES
from schemas.command_line import CommandParser
from schemas.index import RecordIndex
from schemas.layout_centroids import Descriptors
from schemas.manifest import Manifest
from schemas.receipt import LAYOUT

_EMBEDDING = "pipeline.tasks.layout_embedding:LayoutEmbedding"
_LINES = 5
_GRAMS = (2, 3, 4)
_DISTANCES = np.linspace(0.02, 0.98, 49)  # that plain clustering tries

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = _parser()
    args = parser.parse(argv)
    if args.train_steps is not None and args.train_steps < 1:
        parser.error(f"--train-steps must be at least 1, got {args.train_steps}")
    with tempfile.TemporaryDirectory(prefix="found-layouts-") as name:
        folder = Path(name)
        drawn = generate(folder / "drawn", count=args.count, size=args.size)
        lines = map(json.loads, drawn.read_text().splitlines())
        receipts = {
            row["id"]: _Receipt(
                layout=row["layout"],
                text=[box["text"] for box in row["boxes"]],
                image=str(drawn.parent / row["image"]),
            )
            for row in lines
        }
        rows = _rows("drawn", str(drawn), folder / "drawn", receipts, args.train_steps)
        if args.sroie:
            images = files.list_files(f"{args.sroie}/{IMAGE_FOLDER}/*.jpg")
            sroie = [sroie_row(image, folder=args.sroie, labels=()) for image in images]
            receipts = {
                row.id: _Receipt(
                    layout=row.categories[LAYOUT], text=[box[4] for box in row.boxes], image=row.uri
                )
                for row in sroie
            }
            rows += _rows("SROIE", args.sroie, folder / "sroie", receipts, args.train_steps)
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
    parser.add_argument(
        "--size",
        choices=sorted(SIZES),
        default="small",
        help="size of the images that are drawn (default: %(default)s)",
    )
    parser.add_argument("--sroie", metavar="DIR", help="a folder in the form of SROIE")
    parser.add_argument(
        "--train-steps",
        type=int,
        metavar="N",
        help="also train an embedding, for so many steps of 64 receipts (default: none is trained)",
    )
    return parser


@dataclass(frozen=True, kw_only=True)
class _Receipt:
    layout: str
    text: Sequence[str]
    image: str


def _rows(
    name: str, source: str, output: Path, receipts: Mapping[str, _Receipt], steps: int | None
) -> list[dict[str, object]]:
    """Finds the layouts of receipts in all ways; returns how near they are to those given."""
    found = {
        method: _build(source, output / f"by-{method}", method) for method in ("text", "image")
    }
    ids = list(found["text"])
    wanted = _codes([receipts[id_].layout for id_ in ids])
    images = [receipts[id_].image for id_ in ids]
    texts = [receipts[id_].text for id_ in ids]
    by_text, by_hash = tf_idf_distances(texts), hash_distances(images)
    ways = {
        "--layout-from text": (cosine_distances(text_descriptors(texts)), _of(found["text"], ids)),
        "--layout-from image": (
            cosine_distances(np.concatenate([_described(image) for image in images])),
            _of(found["image"], ids),
        ),
        "tf-idf": (by_text, best_clusters(by_text, wanted)),
        "pHash": (by_hash, best_clusters(by_hash, wanted)),
    }
    if steps is not None:
        model = _trained(source, output, steps)
        layouts = _build(source, output / "by-model", f"model={model}")
        embeddings = _embeddings(model, source, output / "predictions")
        ways["--layout-from model"] = (
            cosine_distances(np.array([embeddings[id_] for id_ in ids])),
            _of(layouts, ids),
        )
    return [
        {
            "receipts": name,
            "by": by,
            "layouts": len(set(wanted.tolist())),
            **score(wanted, codes),
            "nearest": round(nearest_share(distances, wanted), 3),
        }
        for by, (distances, codes) in ways.items()
    ]


def _described(image: str) -> Descriptors:
    with Image.open(image) as opened:
        return image_descriptors([opened])


def _build(source: str, output: Path, method: str) -> dict[str, str]:
    """Builds a dataset without given layouts; returns the layout of each receipt."""
    where = ("--input", source, "--output", str(output), "--layout-from", method)
    _run("beam_jobs.build", *where, "--quiet")
    return layout_of(output)


def _trained(source: str, output: Path, steps: int) -> str:
    """Trains an embedding on receipts without layouts; returns where its exported model is."""
    data, run, model = (str(output / name) for name in ("unlabeled", "run", "model"))
    _build(source, Path(data), "none")
    options = ("--steps", str(steps), "--learning-rate", "0.002", "--quiet")
    _run("pipeline.train", data, "--run-dir", run, "--task", _EMBEDDING, *options)
    _run("pipeline.export", run, "--output", model)
    return model


def _embeddings(model: str, source: str, output: Path) -> dict[str, list[float]]:
    """Computes the embeddings of receipts, by id."""
    where = ("--input", source, "--output", str(output), "--format", "jsonl")
    _run("beam_jobs.predict", model, *where, "--quiet")
    lines = [line for path in output.glob("*.jsonl") for line in path.read_text().splitlines()]
    return {line["id"]: line["predictions"]["embedding"] for line in map(json.loads, lines)}


def _run(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _of(layouts: Mapping[str, str], ids: Sequence[str]) -> IntArray:
    return _codes([layouts[id_] for id_ in ids])


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


def tf_idf_distances(receipts: Sequence[Sequence[str]]) -> FloatArray:
    """Returns the cosine distances of the first lines of receipts, [n, n], by tf-idf."""
    counts = [_grams(lines[:_LINES]) for lines in receipts]
    place = {gram: at for at, gram in enumerate(sorted(set().union(*counts)))}
    values = np.zeros((len(counts), len(place)), np.float32)
    for row, grams in enumerate(counts):
        values[row, [place[gram] for gram in grams]] = list(grams.values())
    values *= np.log((1 + len(values)) / (1 + (values > 0).sum(axis=0))) + 1
    return cosine_distances(values)


def hash_distances(images: Sequence[str]) -> FloatArray:
    """Returns the share of bits in which the perceptual hashes of images differ, [n, n]."""
    hashes = np.array([perceptual_hash(Path(image)) for image in images], np.float64)
    same = hashes @ hashes.T + (1 - hashes) @ (1 - hashes).T
    return 1 - same / hashes.shape[1]


def cosine_distances(values: npt.NDArray[Any]) -> FloatArray:
    """Returns the cosine distances of the rows of an array, [n, n]."""
    unit = values / np.maximum(np.linalg.norm(values.astype(np.float64), axis=1), 1e-12)[:, None]
    return np.maximum(1 - unit @ unit.T, 0).astype(np.float64)


def best_clusters(distances: FloatArray, given: IntArray) -> IntArray:
    """Clusters by average linkage, up to the distance at which it is nearest to what is given."""
    # Imported here, as it adds a filter of warnings.
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(distances[np.triu_indices(len(distances), 1)], "average")
    found = [fcluster(tree, limit, "distance").astype(np.int64) for limit in _DISTANCES]
    return max(found, key=lambda codes: adjusted_rand_index(given, codes))


def nearest_share(distances: FloatArray, given: IntArray) -> float:
    """Returns how often the nearest receipt has the same layout, of those that share theirs."""
    apart = distances + 2 * np.eye(len(distances))
    several = np.bincount(given)[given] > 1
    return float((given[apart.argmin(axis=1)] == given)[several].mean()) if several.any() else 0.0


def _grams(lines: Sequence[str]) -> Counter[str]:
    text = re.sub(r"\s+", " ", " ".join(lines).lower())
    return Counter(text[at : at + n] for n in _GRAMS for at in range(len(text) - n + 1))


def score(given: IntArray, found: IntArray) -> dict[str, object]:
    """Compares two partitions of the same receipts, int64 [n].

    The V-measure (Rosenberg and Hirschberg 2007) is the harmonic mean of homogeneity and
    completeness.
    """
    both = _table(given, found)
    entropies = _entropy(both.sum(axis=1)) + _entropy(both.sum(axis=0))
    v_measure = 2 * (entropies - _entropy(both)) / entropies if entropies else 1.0
    return {
        "found": int((both.sum(axis=0) > 0).sum()),
        "adjusted Rand index": round(adjusted_rand_index(given, found), 3),
        "V-measure": round(float(v_measure), 3),
    }


def adjusted_rand_index(given: IntArray, found: IntArray) -> float:
    """Compares two partitions by the pairs of receipts that are together (Hubert and Arabie 1985).

    Returns:
      1 for equal partitions, 0 on average for partitions by chance.
    """
    both = _table(given, found)
    of_given, of_found = _pairs(both.sum(axis=1)), _pairs(both.sum(axis=0))
    by_chance = of_given * of_found / math.comb(len(given), 2)
    most = (of_given + of_found) / 2
    return (_pairs(both) - by_chance) / (most - by_chance) if most != by_chance else 1.0


def _table(given: IntArray, found: IntArray) -> FloatArray:
    """Returns how many receipts are in each part of one and each part of the other."""
    both = np.zeros((given.max() + 1, found.max() + 1))
    np.add.at(both, (given, found), 1)
    return both


def _pairs(counts: FloatArray) -> float:
    """Number of pairs of receipts in the same part."""
    return float((counts * (counts - 1) / 2).sum())


def _entropy(counts: FloatArray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _codes(names: Sequence[str]) -> IntArray:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


if __name__ == "__main__":
    sys.exit(main())
