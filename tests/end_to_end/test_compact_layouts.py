"""Layouts that are found in a dataset, without its inputs."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")

from beam_jobs import compact as compact_module
from beam_jobs.compact import main
from beam_jobs.describe_records import DescribeRecords
from beam_jobs.errors import BuildError
from beam_jobs.forget import main as forget_main
from beam_jobs.verify import verify
from beam_jobs.writing.output import read_centroids, read_least_certain
from beam_jobs.writing.shards import ShardWriter
from schemas.file_names import COMPLETED, centroids_name, least_certain_name
from tests.end_to_end.test_compact import frames
from tests.end_to_end.test_layouts_from_model import WIDTHS, kinds, rows_of
from tests.support import fake_model
from tests.support.dataset_files import flip, manifest_of, split_of
from tests.support.fake_model import EMBEDDING, FAILS
from tests.support.grown import LABELS, table_of
from tests.support.kills import Change, check_killed, exit_code_at
from tests.support.printed import print_receipt
from tests.support.receipts import contents, draw_receipt
from tests.support.unlabeled import layout_of, receipts

COUNTS = {"bakery": 17, "aldi": 9, "kiosk": 4, "mart": 1}
NEWEST = {COMPLETED, "dataset_info.json", "features.json"}
NONE = ("--shards=2", "--layout-from=none", *LABELS)
TEXT = "--layout-from=text"


@pytest.fixture(scope="module")
def shop_rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Receipts with labels, of which some have a group."""
    rows = receipts(tmp_path_factory.mktemp("images"), COUNTS)
    for number, row in enumerate(rows):
        language = ("de", "en", "fr")[number % 3]
        row |= {"total": number / 7, "language": language, "group": f"g{number % 5}"}
        if number % 4:
            row["group"] = ""
    return rows


@pytest.fixture(scope="module")
def plain(shop_rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two versions with one layout; a receipt came twice."""
    folder = tmp_path_factory.mktemp("plain")
    assert build(table_of(folder, "first", shop_rows[::2]), folder / "out", *NONE) == 0
    second = [*shop_rows[1::2], {**shop_rows[0], "id": "twin"}]
    assert build(table_of(folder, "second", second), folder / "out", "--append") == 0
    return folder / "out"


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "copy"))


@pytest.fixture(scope="module")
def direct(shop_rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that a build by text makes of the same inputs."""
    folder = tmp_path_factory.mktemp("direct")
    table = table_of(folder, "rows", shop_rows)
    assert build(table, folder / "out", "--shards=2", TEXT, *LABELS) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def found(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = Path(shutil.copytree(plain, tmp_path_factory.mktemp("found") / "out"))
    assert main([str(out), TEXT, "--workers=1"]) == 0
    return out


def payloads(directory: Path) -> dict[str, bytes]:
    """Bytes of each record of the newest version, by id."""
    return {id_: framed for id_, (_, framed) in frames(directory).items()}


def test_records_are_those_of_a_build_and_keep_their_splits(plain: Path, direct: Path, found: Path):
    assert len(set(layout_of(found).values())) == 4
    assert payloads(found) == payloads(direct)
    assert split_of(found) == split_of(plain)
    assert list(verify(str(found), workers=1)) == []
    old, new, built = (manifest_of(each) for each in (plain, found, direct))
    assert (new.version, len(new.generations)) == (3, 1)
    assert new.vocabularies == built.vocabularies
    assert new.counts == old.counts
    first = old.generations[0].build_options
    assert new.build_options == {**first, "layout_from": "text"}
    before, after = contents(plain), contents(found)
    assert {name for name in before if after[name] != before[name]} == NEWEST


def test_centroids_and_the_least_certain_receipts_are_those_of_a_build(direct: Path, found: Path):
    assert (found / centroids_name(3)).read_bytes() == (direct / centroids_name(1)).read_bytes()
    listed, built = (
        read_least_certain(str(each), manifest_of(each)).receipts for each in (found, direct)
    )
    assert len(listed) == sum(COUNTS.values())
    assert [(one.id, one.layout, one.similarity) for one in listed] == [
        (one.id, one.layout, one.similarity) for one in built
    ]
    splits = split_of(found)
    assert all(one.split == splits[one.id] for one in listed)


def test_bytes_do_not_depend_on_workers(found: Path, copy: Path):
    assert main([str(copy), TEXT, "--workers=2"]) == 0
    assert contents(copy) == contents(found)


def test_another_runner_gives_the_same_bytes(found: Path, copy: Path, job_endpoint: str):
    runner = ["--runner=PortableRunner", "--environment_type=LOOPBACK"]
    assert main([str(copy), TEXT, f"--job_endpoint={job_endpoint}", *runner]) == 0
    assert contents(copy) == contents(found)


def test_bytes_do_not_depend_on_how_many_shards_are_split_at_once(
    found: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("beam_jobs.describe_records._SHARDS_AT_ONCE", 1)
    assert main([str(copy), TEXT, "--workers=1"]) == 0
    assert contents(copy) == contents(found)


def test_what_is_appended_gets_its_layouts_in_the_same_way(
    found: Path, shop_rows: list[dict], build, tmp_path: Path, capsys
):
    out = Path(shutil.copytree(found, tmp_path / "out"))
    new = receipts(tmp_path / "images", {"aldi": 2, "kiosk": 1}, first=100)
    for row in new:
        row |= {"total": 1.5, "language": "de"}
    table = table_of(tmp_path, "new", [*new, *shop_rows])
    for option in ("--layout-from=none", "--layout-from=column", "--layout-from=image"):
        with pytest.raises(SystemExit):
            build(table, out, "--append", option)
        assert "was built with text, and so must be what" in capsys.readouterr().err
    assert build(table, out, "--append") == 0
    manifest = manifest_of(out)
    assert manifest.generations[-1].counts.known == len(shop_rows)
    layouts = layout_of(out)
    assert {layouts[row["id"]] for row in new} == {layouts["aldi-0"], layouts["kiosk-0"]}
    assert manifest.vocabularies == manifest_of(found).vocabularies
    assert list(verify(str(out), workers=1)) == []


def test_receipts_are_forgotten_as_ever(found: Path, tmp_path: Path):
    out = Path(shutil.copytree(found, tmp_path / "out"))
    ids = tmp_path / "ids.txt"
    ids.write_text("mart-0\nbakery-3\n")
    assert forget_main([str(out), f"--ids={ids}", "--workers=1", "--quiet"]) == 0
    left = layout_of(out)
    assert left.keys() == layout_of(found).keys() - {"mart-0", "bakery-3"}
    assert not (out / centroids_name(3)).exists()
    assert read_centroids(str(out), manifest_of(out)).values.any(axis=1).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert list(verify(str(out), workers=1)) == []


def test_layouts_that_were_found_are_found_anew(found: Path, build, tmp_path: Path):
    out = Path(shutil.copytree(found, tmp_path / "out"))
    # Receipts that an append takes for one layout more are the largest one of all.
    new = receipts(tmp_path / "images", {"florist": 30}, first=100)
    for row in new:
        row |= {"total": 1.5, "language": "de"}
        for box, line in zip(row["boxes"], ["BLUMEN MEIER", "Am Bach 7", "Fleurop"], strict=True):
            box["text"] = line
    assert build(table_of(tmp_path, "new", new), out, "--append") == 0
    assert layout_of(out)["florist-100"] == "cluster-00004"
    assert main([str(out), TEXT, "--shards=1", "--workers=1"]) == 0
    assert layout_of(out)["florist-100"] == "cluster-00000"
    assert layout_of(out)["bakery-0"] == "cluster-00001"
    manifest = manifest_of(out)
    assert [len(split.shards) for split in manifest.splits.values()] == [1, 1]
    assert len(manifest.vocabularies["layout"]) == 5
    assert list(verify(str(out), workers=1)) == []


def test_fewer_layouts_than_before(found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = Path(shutil.copytree(found, tmp_path / "out"))
    monkeypatch.setattr("beam_jobs.find_layouts._ROUNDS", 1)
    monkeypatch.setattr("beam_jobs.find_layouts.cluster", lambda descriptors, **_: descriptors[:1])
    assert main([str(out), TEXT, "--workers=1"]) == 0
    assert manifest_of(out).vocabularies["layout"] == ("cluster-00000", "no-cluster")
    assert list(verify(str(out), workers=1)) == []


SHOPS = {
    "bakery": ["BAKERY MILLER", "Market Square 3", "Springfield", "Receipt No. 12345"],
    "kiosk": ["Corner Kiosk Ltd.", "Harbor Road 118", "Tel. 555 0199", "Tax invoice"],
}


@pytest.mark.parametrize(
    "form",
    [(), ("--encoding=raw", "--raw-size=640x480", "--channels=1")],
    ids=["jpeg", "raw"],
)
def test_layouts_are_found_by_the_images_that_are_stored(
    form: tuple[str, ...], build, tmp_path: Path
):
    for shop, count in (("bakery", 5), ("kiosk", 3)):
        for number in range(count):
            path = tmp_path / "in" / f"{shop}-{number}.png"
            path.parent.mkdir(exist_ok=True)
            print_receipt(SHOPS[shop], seed=number).save(path)
    options = ("--shards=2", "--splits=train=0.5,validation=0.5", *form)
    direct, out = tmp_path / "direct", tmp_path / "out"
    assert build(tmp_path / "in", direct, "--layout-from=image", *options) == 0
    assert build(tmp_path / "in", out, "--layout-from=none", *options) == 0
    assert main([str(out), "--layout-from=image", "--workers=1"]) == 0
    assert payloads(out) == payloads(direct)
    assert len(set(layout_of(out).values())) == 2
    assert (out / centroids_name(2)).read_bytes() == (direct / centroids_name(1)).read_bytes()
    assert list(verify(str(out), workers=1)) == []


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_model.put_in_place(monkeypatch)
    return fake_model.write_model(tmp_path / "model", fake_model.OUTPUTS | EMBEDDING)


def test_layouts_by_a_model_are_those_of_a_build(build, model: Path, tmp_path: Path):
    widths = {f"{kind}-{width}": width for kind, some in WIDTHS.items() for width in some}
    table = table_of(tmp_path, "rows", rows_of(tmp_path / "images", widths))
    direct, out, by_model = tmp_path / "direct", tmp_path / "out", f"--layout-from=model={model}"
    assert build(table, direct, "--shards=2", by_model) == 0
    assert build(table, out, "--shards=2", "--layout-from=none") == 0
    assert main([str(out), by_model, "--workers=1"]) == 0
    assert kinds(out) == kinds(direct)
    assert len({name for names in kinds(out).values() for name in names}) == 3
    assert payloads(out) == payloads(direct)
    assert manifest_of(out).build_options == manifest_of(direct).build_options
    assert list(verify(str(out), workers=1)) == []


def test_what_is_appended_gets_its_layouts_by_the_same_model(
    copy: Path, shop_rows: list[dict], model: Path, build, capsys
):
    assert main([str(copy), f"--layout-from=model={model}", "--layout-distance=0.3"]) == 0
    manifest = manifest_of(copy)
    recorded = manifest.build_options
    assert (recorded["layout_from"], recorded["layout_distance"]) == ("model", 0.3)
    assert set(layout_of(copy).values()) == {"cluster-00000"}  # the images have one size
    assert list(verify(str(copy), workers=1)) == []
    table = table_of(copy.parent, "again", shop_rows)
    for option, sentence in (
        ("--layout-from=none", "which holds no copy of it: give --layout-from model=DIR"),
        (TEXT, "which holds no copy of it: give --layout-from model=DIR"),
    ):
        with pytest.raises(SystemExit):
            build(table, copy, "--append", option)
        assert sentence in capsys.readouterr().err
    new = {**shop_rows[0], "id": "new", "image": str(copy.parent / "new.jpg"), "total": 0.5}
    new["boxes"] = draw_receipt(copy.parent / "new.jpg", 9_003)
    table = table_of(copy.parent, "more", [*shop_rows, new])
    assert build(table, copy, "--append", f"--layout-from=model={model}") == 0
    newest = manifest_of(copy)
    assert newest.generations[-1].counts.known == len(shop_rows)
    assert newest.build_options["layout_distance"] == 0.3
    assert list(verify(str(copy), workers=1)) == []
    # A plain compaction needs no model.
    assert main([str(copy), "--workers=1"]) == 0
    assert manifest_of(copy).build_options["layout_distance"] == 0.3


def test_a_model_that_refuses_an_image_ends_it(build, model: Path, tmp_path: Path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    for width in (40, 50, FAILS):
        Image.effect_noise((width, 50), 60).save(folder / f"{width}.png")
    out = tmp_path / "out"
    assert build(folder, out, "--layout-from=none") == 0
    before = contents(out)
    assert main([str(out), f"--layout-from=model={model}", "--workers=1"]) == 1
    assert f"refuses the image of '{FAILS}.png': Invalid JPEG data" in capsys.readouterr().err
    left = contents(out)
    assert [name for name in before if left[name] != before[name]] == []


def test_descriptors_are_made_once_although_the_job_fails(
    found: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    described = []
    describe = DescribeRecords._descriptors

    def counted(self: DescribeRecords, path: str, *others: object) -> object:
        described.append(path)
        return describe(self, path, *others)

    def fail(self: ShardWriter, *_: object) -> None:
        raise BuildError("the disk is full")

    monkeypatch.setattr(DescribeRecords, "_descriptors", counted)
    with monkeypatch.context() as context:
        context.setattr(ShardWriter, "write", fail)
        assert main([str(copy), TEXT, "--workers=1"]) == 1
    assert "the disk is full" in capsys.readouterr().err
    shards = [one for split in manifest_of(copy).splits.values() for one in split.shards]
    assert sorted(described) == sorted(str(copy / shard.name) for shard in shards)
    assert main([str(copy), TEXT, "--workers=1"]) == 0
    assert len(described) == len(shards)
    assert contents(copy) == contents(found)
    assert not (copy / "_staging").exists()


STEPS = [
    Change("rename", "_staging/layouts/*", 2),
    Change("rename", "_staging/plan.json"),
    Change("rename", "_staging/finished-*/receipts-*", 6),
    Change("rename", "versions/00003/layouts.npz"),
    Change("rename", "COMPLETED"),
    Change("rename", "dataset_info.json"),
]


def test_it_is_killed_in_each_step_and_goes_on(plain: Path, found: Path, copy: Path, capsys):
    before, expected = contents(plain), contents(found)
    arguments = [str(copy), TEXT, "--workers=1", "--quiet"]
    for number, step in enumerate(STEPS):
        code = exit_code_at(step, "beam_jobs.compact", arguments, copy)
        assert code < 0, step
        published = check_killed(copy, before, expected)
        assert published is (number == len(STEPS) - 1), step
    assert main(arguments) == 0
    assert "its layouts were found before this command was killed" in capsys.readouterr().out
    assert contents(copy) == expected


def test_a_damaged_record_is_named(copy: Path, capsys):
    shard = manifest_of(copy).splits["train"].shards[0]
    flip(copy / shard.name, shard.size_bytes // 2)
    assert main([str(copy), TEXT, "--workers=1"]) == 1
    error = capsys.readouterr().err
    assert f"{copy / shard.name}, byte " in error
    assert "run python -m beam_jobs.verify" in error
    assert manifest_of(copy).version == 2


def test_records_without_text_have_no_layout_by_text(build, tmp_path: Path, capsys):
    draw_receipt(tmp_path / "in" / "a.jpg", 1)
    draw_receipt(tmp_path / "in" / "b.jpg", 2)
    assert build(tmp_path / "in", tmp_path / "out", "--layout-from=none") == 0
    assert main([str(tmp_path / "out"), TEXT, "--workers=1"]) == 1
    message = "--layout-from text finds no layout, as no receipt has boxes with text"
    assert message in capsys.readouterr().err


def test_layouts_that_people_gave_are_not_replaced(grown: Path, capsys):
    before = contents(grown)
    with pytest.raises(SystemExit):
        main([str(grown), TEXT])
    assert f"people gave the layouts in {grown}, and --layout-from text" in capsys.readouterr().err
    assert contents(grown) == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--layout-from=none",), "must be one of text, image, model=DIR, got 'none'"),
        (("--layout-from=column",), "must be one of text, image, model=DIR, got 'column'"),
        (("--layout-from=model",), "must be one of text, image, model=DIR, got 'model'"),
        (("--layout-from=model=/nowhere",), "/nowhere holds no exported model"),
        (("--layout-distance=0.2",), "anew: give --layout-from model=DIR, too, or leave it out"),
        ((TEXT, "--layout-distance=0.2"), "--layout-distance is for layouts that a model finds"),
    ],
)
def test_nonsense(plain: Path, options: tuple[str, ...], sentence: str, capsys):
    with pytest.raises(SystemExit):
        main([str(plain), *options])
    assert sentence in capsys.readouterr().err


def test_a_bad_distance_and_a_machine_without_tensorflow_are_refused(
    plain: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    option = f"--layout-from=model={model}"
    with pytest.raises(SystemExit):
        main([str(plain), option, "--layout-distance=1"])
    assert "--layout-distance must be more than 0 and less than 1" in capsys.readouterr().err
    monkeypatch.setattr(compact_module, "has_tensorflow", lambda: False)
    with pytest.raises(SystemExit):
        main([str(plain), option])
    assert "TensorFlow, which is not installed here" in capsys.readouterr().err


def test_a_compaction_without_it_lists_and_finds_nothing(copy: Path):
    assert main([str(copy), "--workers=1"]) == 0
    assert set(layout_of(copy).values()) == {"all"}
    assert centroids_name(3) not in contents(copy)
    assert least_certain_name(3) not in contents(copy)
