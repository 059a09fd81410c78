"""The receipt generator: its ground truth is exact, and its corpora are reproducible."""

import io
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from benchmarks.receipts import generate
from benchmarks.receipts.__main__ import main
from benchmarks.receipts.camera import (
    homography,
    inverse,
    project,
    project_boxes,
    rectangle,
    tilted,
)
from benchmarks.receipts.compose import compose
from benchmarks.receipts.content import draw_branch, draw_purchase
from benchmarks.receipts.corpus import RECORDS_NAME, Corpus, draw_receipt
from benchmarks.receipts.fonts import font
from benchmarks.receipts.languages import WORDS
from benchmarks.receipts.layout import Layout, draw_layout
from benchmarks.receipts.markets import MARKETS
from benchmarks.receipts.photo import photograph, place
from benchmarks.receipts.popularity import Popularity
from benchmarks.receipts.randomness import stream
from benchmarks.receipts.render import FlatReceipt, paper_size, render
from benchmarks.receipts.rows import Gap, Row, TextRow
from benchmarks.receipts.scene import Scene, draw_scene
from benchmarks.receipts.storage import draw_format, draw_orientation, encoded, stored_as

COUNT = 100
EDGES = ("xmin", "ymin", "xmax", "ymax")
PLAIN_SCENE = Scene(
    style="scan",
    lighting="scanner",
    background="plain",
    megapixels=0.4,
    frame_aspect=4 / 3,
    fill=0.9,
    angle=7.0,
    tilt=(9.0, -12.0),
    blur=0.0,
    noise=0.0,
    grayscale=False,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out_dir = tmp_path_factory.mktemp("receipts") / "corpus"
    return generate(out_dir, count=COUNT, layouts=30, seed=4, size="small", workers=1).parent


@pytest.fixture(scope="module")
def records(corpus: Path) -> list[dict[str, Any]]:
    lines = (corpus / RECORDS_NAME).read_text(encoding="utf-8").splitlines()
    assert len(lines) == COUNT
    return [json.loads(line) for line in lines]


def composed(index: int) -> tuple[Layout, list[Row], int]:
    """A layout, the rows of one of its receipts, and the receipt's total in cents."""
    layout = draw_layout(0, index)
    purchase = draw_purchase(stream(0, "test", index), layout)
    return layout, compose(layout, draw_branch(0, layout, 0), purchase), purchase.total_cents


def test_same_bytes_for_any_worker_count_and_length(corpus: Path, tmp_path: Path) -> None:
    part = generate(tmp_path / "part", count=17, layouts=30, seed=4, size="small", workers=2)
    names = sorted(path.name for path in (part.parent / "images").iterdir())
    assert len(names) == 17
    for name in names:
        assert (part.parent / "images" / name).read_bytes() == (
            corpus / "images" / name
        ).read_bytes()
    whole = (corpus / RECORDS_NAME).read_text().splitlines()
    assert part.read_text().splitlines() == whole[:17]


def test_another_seed_is_another_corpus() -> None:
    first, second = (draw_receipt(Corpus(seed=seed, size="small"), 0) for seed in (0, 1))
    assert first.data != second.data


def test_records_are_sorted_complete_and_inside_their_images(
    corpus: Path, records: list[dict[str, Any]]
) -> None:
    assert [record["id"] for record in records] == sorted(record["id"] for record in records)
    assert {path.name for path in (corpus / "images").iterdir()} == {
        Path(record["image"]).name for record in records
    }
    for record in records:
        with Image.open(corpus / record["image"]) as image:
            image.load()
            width, height = image.size
        assert 0.29e6 <= width * height <= 0.51e6
        assert len(record["boxes"]) >= 8
        for box in record["boxes"]:
            assert box["text"] == box["text"].strip() != ""
            assert 0 <= box["xmin"] < box["xmax"] <= width, record["id"]
            assert 0 <= box["ymin"] < box["ymax"] <= height, record["id"]


def test_boxes_cover_darker_pixels_than_their_surroundings(
    corpus: Path, records: list[dict[str, Any]]
) -> None:
    for record in records:
        with Image.open(corpus / record["image"]) as image:
            pixels = np.asarray(image.convert("L"), dtype=float)
        contrasts = []
        for box in record["boxes"]:
            xmin, ymin, xmax, ymax = (round(box[edge]) for edge in EDGES)
            inside = pixels[ymin:ymax, xmin:xmax]
            if inside.size:
                contrasts.append(np.percentile(inside, 95) - np.percentile(inside, 5))
        # Each box holds both ink and paper.
        assert np.median(contrasts) > 12, record["id"]


def test_groups_have_one_company_and_mostly_one_layout(records: list[dict[str, Any]]) -> None:
    companies: dict[str, set[str]] = defaultdict(set)
    layouts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        companies[record["group"]].add(record["company"])
        layouts[record["group"]][record["layout"]] += 1
    assert len(companies) > 10
    assert all(len(names) == 1 for names in companies.values())
    at_home = sum(max(counts.values()) for counts in layouts.values())
    assert at_home >= 0.9 * COUNT


@pytest.mark.parametrize("seed", [0, 1])
def test_layouts_have_a_long_tail(seed: int) -> None:
    popularity = Popularity(layouts=60, seed=seed)
    counts = Counter(popularity.layout_of(index) for index in range(2000))
    assert counts[0] > 400  # the most common has a fifth of all receipts or more
    assert counts[0] > counts[3] > counts[20]
    assert [counts[layout] for layout in range(40, 60)] == [1] * 20


def test_layouts_are_different_and_in_every_language() -> None:
    layouts = [draw_layout(0, index) for index in range(60)]
    assert {layout.market.language for layout in layouts} == set(WORDS)
    assert len({layout.market for layout in layouts[: len(MARKETS)]}) == len(MARKETS)
    forms = {(layout.type, layout.header, layout.items, layout.totals) for layout in layouts}
    assert len(forms) == 60
    assert layouts == [draw_layout(0, index) for index in range(60)]


@pytest.mark.parametrize(
    ("locale", "cents", "plain", "marked"),
    [
        ("en_GB", 123456, "1,234.56", "£1,234.56"),
        ("de_DE", 123456, "1.234,56", "1.234,56 €"),
        ("de_CH", 123456, "1'234.56", "1'234.56 CHF"),
        ("pl_PL", 5, "0,05", "0,05 zł"),
        ("en_US", -250, "-2.50", "-$2.50"),
    ],
)
def test_amounts_are_written_as_in_their_country(
    locale: str, cents: int, plain: str, marked: str
) -> None:
    market = next(market for market in MARKETS if market.locale == locale)
    assert market.amount(cents) == plain
    assert market.amount(cents, symbol=True) == marked


@pytest.mark.parametrize(
    ("language", "text", "capitals"),
    [("tr", "Pirinç", "PİRİNÇ"), ("el", "Γάλα πλήρες", "ΓΑΛΑ ΠΛΗΡΕΣ"), ("fr", "Épi", "ÉPI")],
)
def test_capitals_are_those_of_the_language(language: str, text: str, capitals: str) -> None:
    market = next(market for market in MARKETS if market.language == language)
    assert market.upper(text) == capitals


@pytest.mark.parametrize("index", range(0, 60, 3))
def test_amounts_add_up_and_are_printed(index: int) -> None:
    layout = draw_layout(0, index)
    purchase = draw_purchase(stream(0, "amounts", index), layout)
    items = sum(item.quantity * item.unit_cents for item in purchase.items)
    tax = sum(share.tax_cents for share in purchase.taxes)
    added = 0 if layout.market.tax_included else tax
    assert purchase.items
    assert items > 0
    assert purchase.total_cents == items + added
    assert purchase.paid_cents >= purchase.total_cents
    rows = compose(layout, draw_branch(0, layout, 0), purchase)
    texts = [cell.text for row in rows if isinstance(row, TextRow) for cell in row.cells]
    market = layout.market
    assert market.amount(purchase.total_cents, symbol=layout.totals.symbol) in texts
    for item in purchase.items:
        assert any(market.amount(item.amount_cents) in text for text in texts)
    date = purchase.moment.strftime(market.date_formats[layout.meta.date_format])
    assert any(date in text for text in texts)


@pytest.mark.parametrize("index", range(0, 60, 4))
def test_flat_boxes_hold_all_ink_of_the_text_and_fit_it_tightly(index: int) -> None:
    layout, rows, _ = composed(index)
    plain: list[Row] = [
        row
        for row in rows
        if isinstance(row, Gap) or (isinstance(row, TextRow) and row.frame == "none")
    ]
    flat = render(layout, plain, column_px=9.0, rng=stream(0, "test"))
    ink = np.asarray(flat.ink).astype(float)
    outside = ink.copy()
    assert len(flat.texts) == len(flat.boxes) >= 5
    for xmin, ymin, xmax, ymax in flat.boxes.astype(int):
        inside = ink[ymin:ymax, xmin:xmax]
        assert inside.mean() > 15
        outside[ymin:ymax, xmin:xmax] = 0
    assert outside.max() == 0
    assert (flat.boxes[:, :2] >= 0).all()
    assert (flat.boxes[:, 2:] <= flat.ink.size).all()


def test_every_letter_is_in_its_font() -> None:
    ttlib = pytest.importorskip("fontTools.ttLib")
    letters: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for index in range(120):
        layout, rows, _ = composed(index)
        for row in rows:
            if isinstance(row, TextRow):
                bold = row.bold or layout.type.bold
                letters[layout.type.family, bold].update(*(cell.text for cell in row.cells))
    assert len(letters) >= 10
    for (family, bold), used in letters.items():
        known = ttlib.TTFont(font(family, bold=bold, size=10).path).getBestCmap()
        assert {letter for letter in used if ord(letter) not in known} == set(), family


def test_homography_maps_the_corners_and_is_undone_by_its_inverse() -> None:
    corners = tilted(40, 90, angle=11, tilt=(8, -13)) + 100
    view = homography(40, 90, corners)
    sheet = rectangle(0, 0, 40, 90)
    np.testing.assert_allclose(project(view, sheet), corners, atol=1e-9)
    np.testing.assert_allclose(project(inverse(view), corners), sheet, atol=1e-9)
    whole = project_boxes(view, np.array([[0.0, 0.0, 40.0, 90.0]]))[0]
    np.testing.assert_allclose(whole, [*corners.min(axis=0), *corners.max(axis=0)])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_follow_perspective_and_exif_to_the_pixel(orientation: int) -> None:
    layout = draw_layout(0, 0)
    paper = (36.0, 60.0)
    rng = stream(0, "exif", orientation)
    placement = place(PLAIN_SCENE, paper=paper, margin=2.0, rng=rng)
    ink = Image.new("L", (360, 600))
    patch = (40, 50, 160, 110)
    ink.paste(255, patch)
    flat = FlatReceipt(ink=ink, boxes=np.array([patch], dtype=float), texts=("patch",))
    upright, boxes = photograph(flat, layout, PLAIN_SCENE, placement, rng)
    stored, stored_boxes = stored_as(upright, boxes, orientation)
    data = encoded(stored, suffix="jpg", orientation=orientation, rng=rng)
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif().get(0x0112, 1) == orientation
        turned = ImageOps.exif_transpose(image)
        pixels = np.asarray(image.convert("L"))
    assert turned.size == upright.size
    difference = np.abs(np.asarray(turned, float) - np.asarray(upright, float)).mean()
    assert difference < 6  # JPEG's loss only; a wrong turn differs by far more
    down, across = np.nonzero(pixels < 75)
    seen = [across.min(), down.min(), across.max() + 1, down.max() + 1]
    np.testing.assert_allclose(stored_boxes[0], seen, atol=1.5)


def test_shares_of_formats_sizes_and_orientations() -> None:
    suffixes: Counter[str] = Counter()
    turned = gray = scans = middle = 0
    draws = 3000
    for index in range(draws):
        rng = stream(0, "shares", index)
        scene = draw_scene(rng, size="photo", paper_aspect=2.0)
        orientation = draw_orientation(rng, scene)
        suffixes[draw_format(rng, scene, orientation)] += 1
        turned += orientation != 1
        gray += scene.grayscale
        scans += scene.style == "scan"
        middle += 0.5 <= scene.megapixels <= 3
        assert 0.3 <= scene.megapixels <= 12
    assert set(suffixes) == {"jpg", "png", "webp", "tif"}
    assert 0.7 < suffixes["jpg"] / draws < 0.9
    assert min(suffixes.values()) / draws > 0.03
    assert 0.08 < turned / draws < 0.2
    assert 0.08 < gray / draws < 0.2
    assert 0.15 < scans / draws < 0.3
    assert middle / draws > 0.7


def test_a_photo_has_between_a_third_and_twelve_megapixels() -> None:
    receipt = draw_receipt(Corpus(), 1)
    with Image.open(io.BytesIO(receipt.data)) as image:
        assert 0.3e6 <= image.width * image.height <= 12e6


def test_paper_size_scales_with_the_resolution() -> None:
    layout, rows, _ = composed(2)
    width, height = paper_size(layout, rows)
    flat = render(layout, rows, column_px=8.0, rng=stream(0, "test"))
    assert flat.ink.size == (round(width * 8), round(height * 8))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"count": 0}, "count is 0; it must be 1 or more"),
        ({"layouts": 0}, "layouts is 0; it must be 1 or more"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"workers": 0}, "workers is 0; it must be 1 or more"),
        ({"size": "huge"}, "size is 'huge'; it must be one of photo, small"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"count": 1, **options}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        generate(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_command_line_refuses_a_directory_with_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    assert main([str(tmp_path), "--count", "1"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path} is not empty; receipts are written to a new or empty directory only:"
        " choose another one, or delete it first\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_command_line_writes_a_corpus_and_a_contact_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ["--count", "4", "--size", "small", "--workers", "1", "--contact-sheet", str(sheet)]
    assert main([str(tmp_path / "out"), *arguments]) == 0
    assert capsys.readouterr().out.startswith("4 receipts in ")
    assert len((tmp_path / "out" / RECORDS_NAME).read_text().splitlines()) == 4
    with Image.open(sheet) as image:
        assert image.width > 2000


def test_import_loads_no_package_that_reads_the_disk() -> None:
    code = (
        "import sys, benchmarks.receipts.__main__ as m;"
        "print([n for n in ('faker', 'segno', 'barcode', 'matplotlib') if n in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert result.stdout.strip() == "[]"
