"""Datasets of receipts without a layout: found by their text, or one for all."""

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")

import apache_beam as beam
from apache_beam.pvalue import AsSingleton
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_jobs import find_layouts
from beam_jobs.compact import main as compact_main
from beam_jobs.find_layouts import KeyedDescriptors
from beam_jobs.forget import main as forget_main
from beam_jobs.layouts import descriptors
from beam_jobs.layouts.text import TEXT_VERSION, text_descriptors
from beam_jobs.prepare.references import References, make_references, stage_references
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from beam_jobs.verify import verify
from beam_jobs.writing.output import read_centroids, read_least_certain
from schemas.file_names import (
    COMPLETED,
    TFDS_FEATURES,
    TFDS_INFO,
    centroids_name,
    least_certain_name,
)
from schemas.layout_centroids import NO_CLUSTER, LayoutCentroids
from schemas.least_certain import LeastCertain, UncertainReceipt
from tests.support.dataset_factory import list_least_certain
from tests.support.dataset_files import change_manifest, flip, manifest_of, records_of, split_of
from tests.support.grown import table_of, version_of
from tests.support.receipts import SROIE, contents, draw_receipt
from tests.support.unlabeled import SHOPS, layout_of, receipts

COUNTS = {"bakery": 17, "aldi": 9, "kiosk": 4, "mart": 1}
TEXT = "--layout-from=text"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    return receipts(tmp_path_factory.mktemp("images"), COUNTS)


@pytest.fixture(scope="module")
def found(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("found")
    assert build(table_of(folder, "rows", rows), folder / "out", "--shards=2", TEXT) == 0
    return folder / "out"


@pytest.fixture
def copy(found: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found, tmp_path / "copy"))


def shop_names(directory: Path) -> dict[str, set[str]]:
    """Names of the layouts that the receipts of each shop have."""
    names: dict[str, set[str]] = {}
    for id_, layout in layout_of(directory).items():
        names.setdefault(id_.partition("-")[0], set()).add(layout)
    return names


BY_SIZE = {shop: {f"cluster-{number:05d}"} for number, shop in enumerate(COUNTS)}


def test_receipts_that_begin_alike_are_a_layout(found: Path):
    assert shop_names(found) == BY_SIZE
    manifest = manifest_of(found)
    assert manifest.vocabularies["layout"] == tuple(sorted(set().union(*BY_SIZE.values())))
    assert manifest.build_options["layout_from"] == "text"
    assert list(verify(str(found), workers=1)) == []
    for split in manifest.splits:
        for shard in records_of(found, split):
            for record in shard:
                position = record["receipt/layout_id"]
                assert manifest.vocabularies["layout"][position] == record["receipt/layout"]


def test_bytes_do_not_depend_on_order_or_workers(
    found: Path, rows: list[dict], build, tmp_path: Path
):
    table = table_of(tmp_path, "rows", rows[::-1])
    assert build(table, tmp_path / "out", "--shards=2", TEXT, "--workers=2") == 0
    assert contents(tmp_path / "out") == contents(found)


def test_a_layout_that_is_given_is_not_read(found: Path, rows: list[dict], build, tmp_path: Path):
    table = table_of(tmp_path, "rows", [{**row, "layout": row["id"]} for row in rows])
    assert build(table, tmp_path / "out", "--shards=2", TEXT) == 0
    assert contents(tmp_path / "out") == contents(found)


def test_a_dry_run_finds_them_too(rows: list[dict], build, tmp_path: Path, capsys):
    table = table_of(tmp_path, "rows", [{**row, "image": "missing.jpg"} for row in rows])
    assert build(table, tmp_path / "out", "--dry-run", TEXT) == 0
    printed = capsys.readouterr().out
    assert "4, 1 of them with a single receipt" in printed
    assert "cluster-00000: 17" in printed


def test_what_is_appended_gets_known_layouts_or_new_ones(
    copy: Path, found: Path, rows: list[dict], build, tmp_path: Path
):
    SHOPS["florist"] = ["BLUMEN MEIER", "Am Bach 7", "Fleurop-Partner"]
    new = receipts(tmp_path / "images", {"florist": 2, "aldi": 3, "mart": 2}, first=100)
    # Two receipts that the dataset has already: their layouts are no labels of theirs.
    assert build(table_of(tmp_path, "new", [*new, *rows[:2]]), copy, "--append") == 0
    assert shop_names(copy) == {**BY_SIZE, "florist": {"cluster-00004"}}
    manifest = manifest_of(copy)
    assert manifest.version == 2
    assert manifest.counts.known == 2
    old = manifest_of(found).vocabularies["layout"]
    assert manifest.vocabularies["layout"] == (*old, "cluster-00004")
    before, after = (contents(each) for each in (found, copy))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {COMPLETED, TFDS_INFO, TFDS_FEATURES}
    first, second = (read_centroids(str(copy), version_of(copy, number)) for number in (1, 2))
    assert second.values[:4].tolist() == first.values.tolist()
    assert len(second) == 5
    assert list(verify(str(copy), workers=1)) == []


def test_compacting_keeps_the_layouts_and_their_centroids(
    copy: Path, rows: list[dict], build, tmp_path: Path
):
    new = receipts(tmp_path / "images", {"kiosk": 3}, first=200)
    assert build(table_of(tmp_path, "new", new), copy, "--append") == 0
    before = layout_of(copy)
    assert compact_main([str(copy), "--workers=1"]) == 0
    assert layout_of(copy) == before
    manifest = manifest_of(copy)
    assert manifest.version == 3
    assert manifest.build_options["layout_from"] == "text"
    assert (copy / centroids_name(3)).read_bytes() == (copy / centroids_name(2)).read_bytes()
    # The same receipts again are known, by labels without a layout.
    assert build(table_of(tmp_path, "again", [*new, *rows]), copy, "--append") == 0
    assert manifest_of(copy).version == 3


def test_a_layout_of_few_receipts_loses_its_centroid_with_the_first_that_is_forgotten(
    copy: Path, build, tmp_path: Path
):
    many = receipts(tmp_path / "many", {"bakery": 5}, first=500)
    assert build(table_of(tmp_path, "many", many), copy, "--append") == 0
    file = tmp_path / "ids.txt"
    file.write_text("mart-0\nkiosk-2\nbakery-1\nbakery-2\n")
    assert forget_main([str(copy), f"--ids={file}", "--workers=1", "--quiet"]) == 0
    centroids = read_centroids(str(copy), manifest_of(copy))
    # 20 receipts of the bakery are left, none of aldi went, and three of the kiosk are left.
    assert centroids.values.any(axis=1).tolist() == [True, True, False, False]
    assert not (copy / centroids_name(1)).exists()
    assert list(verify(str(copy), workers=1)) == []
    # The next receipt of that shop is one of a new layout.
    new = receipts(tmp_path / "images", {"mart": 1, "bakery": 1}, first=300)
    assert build(table_of(tmp_path, "new", new), copy, "--append") == 0
    assert layout_of(copy)["mart-300"] == "cluster-00004"
    assert layout_of(copy)["bakery-300"] == "cluster-00000"


def listed_in(directory: Path) -> tuple[UncertainReceipt, ...]:
    """The least certain receipts of the newest version."""
    listed = read_least_certain(str(directory), manifest_of(directory))
    assert listed is not None
    return listed.receipts


def test_the_least_certain_receipts_are_listed(found: Path):
    listed = listed_in(found)
    layouts, splits = layout_of(found), split_of(found)
    assert {one.id for one in listed} == layouts.keys()  # there are fewer than 64
    for one in listed:
        assert (one.layout, one.split) == (layouts[one.id], splits[one.id])
        assert 0.65 <= one.similarity <= 1
    assert [one.similarity for one in listed] == sorted(one.similarity for one in listed)
    # Every third receipt has a typing error, and is less like its layout than any other of it.
    for shop in ("bakery", "aldi"):
        similarities = {one.id: one.similarity for one in listed if one.id.startswith(shop)}
        mistyped = {id_ for id_ in similarities if int(id_.partition("-")[2]) % 3 == 2}
        others = similarities.keys() - mistyped
        assert max(map(similarities.get, mistyped)) < min(map(similarities.get, others))
    assert listed[-1].id == "mart-0"  # the only one of its layout
    assert listed[-1].similarity > 0.9999


def test_an_append_lists_the_least_certain_of_all_receipts(
    copy: Path, build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = listed_in(copy)
    new = receipts(tmp_path / "images", {"aldi": 3, "bakery": 2}, first=100)
    monkeypatch.setattr("schemas.least_certain.MAX_RECEIPTS", 20)
    assert build(table_of(tmp_path, "new", new), copy, "--append") == 0
    after = listed_in(copy)
    assert len(after) == 20
    added = [one for one in after if one.id in {row["id"] for row in new}]
    assert "aldi-102" in {one.id for one in added}
    assert after == LeastCertain.of([*before, *added]).receipts
    assert list(verify(str(copy), workers=1)) == []
    assert compact_main([str(copy), "--workers=1"]) == 0
    assert manifest_of(copy).version == 3
    assert listed_in(copy) == after
    splits = split_of(copy)
    assert all(one.split == splits[one.id] for one in after)
    assert list(verify(str(copy), workers=1)) == []


def test_a_forgotten_receipt_is_no_longer_listed(copy: Path, tmp_path: Path):
    before = listed_in(copy)
    file = tmp_path / "ids.txt"
    file.write_text("bakery-2\naldi-5\nmart-0\n")
    assert forget_main([str(copy), f"--ids={file}", "--workers=1", "--quiet"]) == 0
    # Less than 20 receipts are left of each of these layouts, so their centroids went.
    assert {one.id for one in listed_in(copy)} == {f"kiosk-{number}" for number in range(4)}
    assert set(listed_in(copy)) < set(before)
    assert not (copy / least_certain_name(1)).exists()
    for path in copy.rglob("*.json"):
        assert "mart-0" not in path.read_text()
    assert list(verify(str(copy), workers=1)) == []


def test_a_layout_of_many_receipts_keeps_the_others_in_the_list(copy: Path, build, tmp_path: Path):
    many = receipts(tmp_path / "many", {"bakery": 6}, first=500)
    assert build(table_of(tmp_path, "many", many), copy, "--append") == 0
    before = listed_in(copy)
    file = tmp_path / "ids.txt"
    file.write_text("bakery-2\n")
    assert forget_main([str(copy), f"--ids={file}", "--workers=1", "--quiet"]) == 0
    assert listed_in(copy) == tuple(one for one in before if one.id != "bakery-2")
    assert list(verify(str(copy), workers=1)) == []


def test_a_dataset_without_the_list_is_valid_and_grows(copy: Path, build, tmp_path: Path):
    """Older builds wrote none."""
    (copy / least_certain_name(1)).unlink()
    change_manifest(copy, lambda manifest: manifest["files"].pop(least_certain_name(1)))
    assert list(verify(str(copy), workers=1)) == []
    assert read_least_certain(str(copy), manifest_of(copy)) is None
    assert compact_main([str(copy), "--workers=1", "--shards=1"]) == 0
    assert read_least_certain(str(copy), manifest_of(copy)) is None
    new = receipts(tmp_path / "images", {"kiosk": 2}, first=700)
    assert build(table_of(tmp_path, "new", new), copy, "--append") == 0
    assert {one.id for one in listed_in(copy)} == {"kiosk-700", "kiosk-701"}


def test_a_damaged_list_is_named(copy: Path, build, tmp_path: Path, capsys):
    path = copy / least_certain_name(1)
    flip(path, -30)
    assert any("least_certain.json" in str(fault) for fault in verify(str(copy), workers=1))
    new = receipts(tmp_path / "images", {"kiosk": 1}, first=800)
    assert build(table_of(tmp_path, "new", new), copy, "--append") == 1
    assert f"{path} has another checksum than the manifest says" in capsys.readouterr().err
    assert manifest_of(copy).version == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": "nobody"}, "lists a receipt that this version does not have (id 'nobody')"),
        ({"split": "test"}, "names split 'test' and layout 'cluster-00000': one is unknown"),
        ({"layout": "x"}, "names split 'train' and layout 'x': one is unknown (id 'bakery-1')"),
    ],
)
def test_a_list_of_other_receipts_is_a_fault(copy: Path, changes: dict[str, str], sentence: str):
    receipt = UncertainReceipt(id="bakery-1", split="train", layout="cluster-00000", similarity=0.5)
    path = list_least_certain(copy, LeastCertain(receipts=(receipt,)))
    assert list(verify(str(copy), workers=1)) == []
    changed = dataclasses.replace(receipt, **changes)
    list_least_certain(copy, LeastCertain(receipts=(changed,)))
    [fault] = verify(str(copy), workers=1)
    assert fault.file == str(path)
    assert sentence in str(fault)


def test_none_lists_no_receipts(rows: list[dict], build, tmp_path: Path):
    out = tmp_path / "out"
    assert build(table_of(tmp_path, "rows", rows[:9]), out, "--layout-from=none") == 0
    assert least_certain_name(1) not in contents(out)


def test_other_descriptors_are_not_compared(
    copy: Path, rows: list[dict], build, monkeypatch: pytest.MonkeyPatch, capsys
):
    newer = dataclasses.replace(descriptors.BY_TEXT, version=TEXT_VERSION + 1)
    monkeypatch.setattr(descriptors, "BY_TEXT", newer)
    with pytest.raises(SystemExit):
        build(table_of(copy.parent, "x", rows), copy, "--append")
    message = f"by text of version {TEXT_VERSION}, and this tillroll has version {newer.version}"
    assert message in capsys.readouterr().err


def test_receipts_without_text_are_one_layout(rows: list[dict], build, tmp_path: Path, capsys):
    blank = receipts(tmp_path / "images", {"blank": 2})
    table = table_of(tmp_path, "rows", [*rows, *blank])
    assert build(table, tmp_path / "out", TEXT) == 0
    assert shop_names(tmp_path / "out") == {**BY_SIZE, "blank": {"no-cluster"}}
    assert "2 receipts without text" in capsys.readouterr().out


def test_all_receipts_without_text_is_an_error(build, tmp_path: Path, capsys):
    table = table_of(tmp_path, "rows", receipts(tmp_path / "images", {"blank": 3}))
    assert build(table, tmp_path / "out", TEXT) == 1
    assert "no receipt has boxes with text" in capsys.readouterr().err


def test_a_damaged_file_of_centroids_ends_an_append(copy: Path, build, tmp_path: Path, capsys):
    flip(copy / centroids_name(1), -500)
    new = receipts(tmp_path / "images", {"kiosk": 1}, first=400)
    with pytest.raises(SystemExit):
        build(table_of(tmp_path, "new", new), copy, "--append")
    assert "layouts.npz has another checksum" in capsys.readouterr().err
    assert any("layouts.npz" in str(fault) for fault in verify(str(copy), workers=1))


def test_none_is_one_layout(rows: list[dict], build, tmp_path: Path):
    out = tmp_path / "out"
    assert build(table_of(tmp_path, "rows", rows[:9]), out, "--layout-from=none") == 0
    assert set(layout_of(out).values()) == {"all"}
    assert build(table_of(tmp_path, "more", rows[5:12]), out, "--append") == 0
    assert set(layout_of(out).values()) == {"all"}
    assert manifest_of(out).counts.known == 4
    assert centroids_name(2) not in manifest_of(out).checksums


def test_a_folder_needs_no_subfolders_for_one_layout(build, tmp_path: Path):
    draw_receipt(tmp_path / "in" / "a.jpg", 1)
    draw_receipt(tmp_path / "in" / "aldi" / "b.jpg", 2)
    assert build(tmp_path / "in", tmp_path / "out", "--layout-from=none") == 0
    assert layout_of(tmp_path / "out") == {"a.jpg": "all", "aldi/b.jpg": "all"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "has no column layout"),
        (("--layout-from=letters",), "'letters'"),
        ((TEXT, "--columns=boxes=lines"), "has no column lines"),
    ],
)
def test_bad_values_say_what_is_missing(
    rows: list[dict], build, tmp_path: Path, capsys, options: tuple[str, ...], message: str
):
    table = tmp_path / "rows.csv"
    table.write_text(f"id,image,boxes\n1,{rows[0]['image']},\n")
    assert _status(build, table, tmp_path / "out", *options) in (1, 2)
    assert message in capsys.readouterr().err


def _status(build, *arguments: object) -> int:
    """Exit status of a build, also of one that its command line ends."""
    try:
        return build(*arguments)
    except SystemExit as end:
        return end.code


def test_a_folder_has_no_text(build, tmp_path: Path, capsys):
    draw_receipt(tmp_path / "in" / "aldi" / "b.jpg", 2)
    with pytest.raises(SystemExit):
        build(tmp_path / "in", tmp_path / "out", TEXT)
    assert "--layout-from is text, and the input is a folder of images" in capsys.readouterr().err


def test_what_is_appended_is_found_as_before(copy: Path, rows: list[dict], build, capsys):
    with pytest.raises(SystemExit):
        build(table_of(copy.parent, "x", rows), copy, "--append", "--layout-from=none")
    assert "--layout-from none" in capsys.readouterr().err


@pytest.mark.skipif(not SROIE.exists(), reason="no SROIE receipts beside the project")
def test_real_receipts_get_the_layouts_of_their_shops(build, tmp_path: Path):
    assert build(SROIE, tmp_path / "out", TEXT, "--label=company:string") == 0
    records = [
        record
        for split in manifest_of(tmp_path / "out").splits
        for shard in records_of(tmp_path / "out", split)
        for record in shard
    ]
    shops = [record["receipt/company"].upper() for record in records]
    assert adjusted_rand(shops, [record["receipt/layout"] for record in records]) > 0.92


def adjusted_rand(left: Iterable[str], right: Iterable[str]) -> float:
    """Adjusted Rand index of two partitions (Hubert and Arabie 1985)."""
    table: dict[tuple[str, str], int] = {}
    for pair in zip(left, right, strict=True):
        table[pair] = table.get(pair, 0) + 1
    names = [sorted({pair[side] for pair in table}) for side in (0, 1)]
    counts = np.array([[table.get((a, b), 0) for b in names[1]] for a in names[0]])

    def pairs(values: np.ndarray) -> float:
        return float((values * (values - 1) / 2).sum())

    both, rows, columns = pairs(counts), pairs(counts.sum(1)), pairs(counts.sum(0))
    expected = rows * columns / pairs(counts.sum())
    return (both - expected) / ((rows + columns) / 2 - expected)


def test_known_layouts_come_before_nearer_new_ones(tmp_path: Path):
    staging = Staging(str(tmp_path / "out"))
    known, new = (text_descriptors([[line]]) for line in ("ALDI SUED KOELN 1", "ALDI SUED KOELNER"))
    row = Row(id="r", uri="", categories={"layout": ""}, boxes=[(0, 0, 1, 1, "ALDI SUED KOELNER")])
    references = make_references(
        [row], keys=[(1, 2)], locations=[(0, b"", 0, 1)], categories=["layout"]
    )
    keyed = KeyedDescriptors(key=references.key, values=new)

    def staged(values: np.ndarray) -> str:
        centroids = LayoutCentroids(
            layout_from="text", descriptor_version=TEXT_VERSION, values=values
        )
        return find_layouts._write(staging, centroids.to_bytes())

    both = staged(np.concatenate([known, new]))
    described = (0, stage_references(references, staging), keyed.staged(staging))
    for count, layout in ((1, "cluster-00000"), (0, "cluster-00001")):
        before = staged(known[:count])
        (_, path), uncertain = find_layouts._assign(
            described,
            known=before,
            centroids=both,
            method=descriptors.BY_TEXT,
            staging=staging,
        )
        assigned = References.from_bytes(Path(path).read_bytes())
        assert assigned.categories["layout"][0] == (layout,)
        # The similarity is that to the layout it got: 1 to its own text, less to the known one.
        [(similarity, key)] = uncertain.value
        assert (similarity == 1) is (count == 0)
        assert key == np.array([1, 2], np.uint64).tobytes()


def test_rare_layouts_are_found_in_later_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Samples of 20 of 383 receipts show the common layout first, and then the rare ones."""
    monkeypatch.setattr(find_layouts, "_SAMPLE", 20)
    staging = Staging(str(tmp_path / "out"))
    names = ["common shop"] * 380 + [f"{word} store {word}" for word in ("rare", "odd", "last")]
    rows = [Row(id=str(number), uri="", boxes=[(0, 0, 1, 1, n)]) for number, n in enumerate(names)]
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**63, (len(rows), 2), np.uint64).astype(np.uint64)
    for row in rows:
        row.categories["layout"] = ""
    references = make_references(
        rows,
        keys=[tuple(key) for key in keys.tolist()],
        locations=[(0, b"", 0, 1)] * len(rows),
        categories=["layout"],
    )
    described = KeyedDescriptors(
        key=references.key, values=text_descriptors([[name] for name in names])
    )
    written = tmp_path / "assigned"
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:  # runs in this process
        inputs = pipeline | "Inputs" >> beam.Create([len(rows)])
        found = find_layouts.find_layouts(
            pipeline | "References" >> beam.Create([(0, stage_references(references, staging))]),
            pipeline | "Descriptors" >> beam.Create([(0, described.staged(staging))]),
            AsSingleton(inputs),
            method=descriptors.BY_TEXT,
            base=None,
            staging=staging,
        )
        _ = found.references | "Keep" >> beam.Map(lambda one: written.write_text(one[1]))
    assigned_path = Path(written.read_text())
    values, codes = References.from_bytes(assigned_path.read_bytes()).categories["layout"]
    layouts = [values[code] for code in codes.tolist()]
    assert len(set(layouts[:380])) == 1
    assert len(set(layouts)) == 4
    assert NO_CLUSTER not in layouts
