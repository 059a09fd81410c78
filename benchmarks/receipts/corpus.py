"""A whole corpus: which layout each receipt has, one receipt end to end, and many at once."""

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.receipts.compose import compose
from benchmarks.receipts.content import draw_branch, draw_purchase
from benchmarks.receipts.layout import Layout, draw_layout
from benchmarks.receipts.photo import photograph, place
from benchmarks.receipts.popularity import Popularity
from benchmarks.receipts.randomness import stream
from benchmarks.receipts.render import paper_size, render
from benchmarks.receipts.scene import SIZES, draw_scene
from benchmarks.receipts.storage import draw_format, draw_orientation, encoded, stored_as

RECORDS_NAME = "receipts.jsonl"
IMAGES_NAME = "images"
_CHUNK = 8


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Options that decide a corpus's bytes, all but the number of receipts.

    Raises:
      ValueError: an option has a value that is not allowed.
    """

    layouts: int = 60
    seed: int = 0
    size: str = "photo"
    single_share: float = 1 / 3

    def __post_init__(self) -> None:
        _check_least("layouts", self.layouts, 1)
        _check_least("seed", self.seed, 0)
        if not 0 <= self.single_share < 1:
            raise ValueError(f"single_share is {self.single_share}; it must be 0 to less than 1")
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size!r}; it must be one of {', '.join(SIZES)}")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One image file, and its line of the ground truth."""

    record: dict[str, object]
    data: bytes


def generate(
    out_dir: Path,
    *,
    count: int,
    layouts: int = 60,
    seed: int = 0,
    size: str = "photo",
    single_share: float = 1 / 3,
    second_photos: float = 0.0,
    balanced: int = 0,
    workers: int | None = None,
    progress: bool = False,
) -> Path:
    """Writes receipt images and their ground truth.

    Receipt i depends on `seed`, `layouts`, `size` and i only: a longer corpus begins with the
    same bytes as a shorter one, whatever the number of workers. Those are spawned: a script that
    calls this needs the usual `if __name__ == "__main__":`.

    Args:
      out_dir: a directory that is empty or does not exist yet.
      count: receipts to write.
      layouts: how many layouts there are.
      seed: 0 or more.
      size: "photo" for 0.3 to 12 megapixels, "small" for 0.3 to 0.5.
      single_share: share of the layouts that have one receipt each; these are the last ones.
      second_photos: share of the receipts that are photographed a second time, in another scene.
        These photos come after the others; `photo_of` is the id of the first one.
      balanced: further receipts of each layout, the same number of all, which come last; their
        ids begin with "balanced".
      workers: processes; None is one for each processor this process may use.
      progress: whether to show a progress bar on stderr.

    Returns:
      The path of the ground truth, `receipts.jsonl`; it is written last.

    Raises:
      ValueError: an argument has a value that is not allowed.
      FileExistsError: `out_dir` has something in it.
    """
    _check_least("count", count, 1)
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    _check_least("workers", workers, 1)
    if not 0 <= second_photos <= 1:
        raise ValueError(f"second_photos is {second_photos}; it must be 0 to 1")
    _check_least("balanced", balanced, 0)
    corpus = Corpus(layouts=layouts, seed=seed, size=size, single_share=single_share)
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise FileExistsError(
            f"{out_dir} is not empty; receipts are written to a new or empty directory only:"
            " choose another one, or delete it first"
        )
    (out_dir / IMAGES_NAME).mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(record, ensure_ascii=False) + "\n"
        for record in _written(
            corpus,
            out_dir,
            [*_photos(count, second_photos), *_of_each_layout(balanced, layouts)],
            workers=workers,
            progress=progress,
        )
    ]
    records = out_dir / RECORDS_NAME
    _write_whole(records, "".join(lines).encode())
    return records


class _Photo(NamedTuple):
    """A photo to be drawn: of receipt `number` of the corpus, or of a layout if there is one."""

    number: int
    photo: int = 0
    layout: int | None = None


def _photos(count: int, second_photos: float) -> list[_Photo]:
    """Lists the photos of a corpus: of 5 receipts, 2 of which twice, 0 and 2 are."""
    again = round(count * second_photos)
    first = [_Photo(index) for index in range(count)]
    return first + [_Photo(k * count // again, 1) for k in range(again)]


def _of_each_layout(count: int, layouts: int) -> list[_Photo]:
    return [_Photo(n, layout=layout) for n in range(count) for layout in range(layouts)]


def draw_receipt(
    corpus: Corpus, index: int, photo: int = 0, layout_index: int | None = None
) -> Receipt:
    """Receipt number `index` of a corpus, in its first photo (0) or a later one.

    With `layout_index`, it is a further receipt of this layout, not of the corpus.
    """
    popularity = _popularity(corpus)
    if layout_index is None:
        rng = stream(corpus.seed, "receipt", index)
        first, chosen = f"receipt-{index:07d}", popularity.layout_of(index)
    else:
        rng = stream(corpus.seed, "balanced", layout_index, index)
        first, chosen = f"balanced-{layout_index:04d}-{index:04d}", layout_index
    home = _layout(corpus.seed, chosen)
    branch = draw_branch(corpus.seed, home, popularity.branch_of(home.index, rng))
    layout = home
    borrows = layout_index is None and popularity.is_common(home.index)
    if borrows and rng.random() < 0.03:
        # A branch borrows a till for a day: its layout is no longer its group's.
        layout = replace(_till_of_another(corpus, home, popularity.common), trade=home.trade)
    purchase = draw_purchase(rng, layout)
    if photo:  # of the same purchase, in a scene of its own
        rng = stream(corpus.seed, "photo", index, photo)
    rows = compose(layout, branch, purchase)
    paper = paper_size(layout, rows)
    scene = draw_scene(rng, size=corpus.size, paper_aspect=paper[1] / paper[0])
    placement = place(scene, paper=paper, margin=layout.paper.margin, rng=rng)
    flat = render(layout, rows, column_px=placement.column_px, rng=rng)
    image, boxes = photograph(flat, layout, scene, placement, rng)
    orientation = draw_orientation(rng, scene)
    suffix = draw_format(rng, scene, orientation)
    image, boxes = stored_as(image, boxes, orientation)
    identity = f"{first}-photo-{photo + 1}" if photo else first
    edges = ("xmin", "ymin", "xmax", "ymax")
    record: dict[str, object] = {
        "id": identity,
        "image": f"{IMAGES_NAME}/{identity}.{suffix}",
        "layout": layout.name,
        "group": branch.group,
        "company": branch.company,
        "date": purchase.moment.date().isoformat(),
        "total": purchase.total_cents / 100,
        "currency": layout.market.currency,
        "language": layout.market.language,
        "lighting": scene.lighting,
        "boxes": [
            dict(zip(edges, np.round(box, 2).tolist(), strict=True)) | {"text": text}
            for box, text in zip(boxes, flat.texts, strict=True)
        ],
    }
    if photo:
        record["photo_of"] = first
    data = encoded(image, suffix=suffix, orientation=orientation, rng=rng)
    return Receipt(record=record, data=data)


def _till_of_another(corpus: Corpus, home: Layout, common: int) -> Layout:
    """The next common layout of the same country, or the layout itself."""
    for step in range(1, common):
        other = _layout(corpus.seed, (home.index + step) % common)
        if other.market == home.market:
            return other
    return home


@lru_cache(maxsize=4096)
def _layout(seed: int, index: int) -> Layout:
    return draw_layout(seed, index)


@lru_cache(maxsize=4)
def _popularity(corpus: Corpus) -> Popularity:
    return Popularity(layouts=corpus.layouts, seed=corpus.seed, single_share=corpus.single_share)


def _written(
    corpus: Corpus,
    out_dir: Path,
    photos: Sequence[_Photo],
    *,
    workers: int,
    progress: bool,
) -> Iterator[dict[str, object]]:
    """Writes each image; the records come in the order of the photos that are given."""
    from tqdm import tqdm

    jobs = ((corpus, out_dir, photo) for photo in photos)
    with tqdm(total=len(photos), unit="receipt", disable=not progress) as bar:
        if workers == 1:
            for job in jobs:
                yield _write_receipt(job)
                bar.update()
            return
        # Spawned, not forked: the caller may have started threads (TensorFlow does).
        with multiprocessing.get_context("spawn").Pool(min(workers, len(photos))) as pool:
            for record in pool.imap(_write_receipt, jobs, chunksize=_CHUNK):
                yield record
                bar.update()


def _write_receipt(job: tuple[Corpus, Path, _Photo]) -> dict[str, object]:
    corpus, out_dir, photo = job
    receipt = draw_receipt(corpus, *photo)
    _write_whole(out_dir / str(receipt.record["image"]), receipt.data)
    return receipt.record


def _write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is never seen half written."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}; it must be {least} or more")
