"""The command line: what each argument means, and what a wrong one is told."""

import json
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.arguments.build import build_options, build_parser
from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions
from beam_jobs.options import Base, BuildOptions
from beam_jobs.sources.source import Source
from schemas.manifest import Counts, Generation, Manifest, Split
from schemas.receipt import Label


def parsed(*argv: str) -> Namespace:
    return build_parser().parse_args(["--input=/in/t.csv", "--output=/out", *argv])


def options_of(*argv: str) -> BuildOptions:
    return build_options(parsed(*argv))


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence that a command line is refused with."""
    with pytest.raises((ValueError, SystemExit)) as refused:
        options_of(*argv)
    if isinstance(refused.value, ValueError):
        return str(refused.value)
    assert refused.value.code == 2
    return capsys.readouterr().err.rstrip().partition(": error: ")[2]


def test_defaults_are_those_of_the_options() -> None:
    source = Source(path="/in/t.csv", format="csv", columns={}, image_root="/in")
    assert options_of() == BuildOptions(source=source, output="/out")


def test_every_argument_reaches_its_option() -> None:
    options = options_of(
        "--input=gs://b/x/*.parquet",
        "--input-format=parquet",
        "--label=total:float",
        "--label",
        "currency:category",
        "--columns=image=file, layout=shop",
        "--image-root=gs://b/images",
        "--box-frame=upright",
        "--output=gs://b/out",
        "--encoding=raw",
        "--max-side=512",
        "--quality=80",
        "--raw-size=128x64",
        "--fit=stretch",
        "--channels=1",
        "--splits=train=0.5,test=0.5",
        "--shards=train=8,test=4",
        "--shard-size-mb=64",
        "--shards-multiple-of=4",
        "--seed=7",
        "--max-bad-fraction=0.5",
        "--max-pixels=1000",
        "--min-side=8",
        "--max-input-mb=3",
        "--max-image-memory-mb=500",
        "--max-image-seconds=9",
    )
    assert options == BuildOptions(
        source=Source(
            path="gs://b/x/*.parquet",
            format="parquet",
            labels=(Label(name="total", type="float"), Label(name="currency", type="category")),
            columns={"image": "file", "layout": "shop"},
            image_root="gs://b/images",
            confine_images=True,
        ),
        output="gs://b/out",
        image=ImageOptions(
            encoding="raw",
            max_side=512,
            quality=80,
            raw_size=(128, 64),
            fit="stretch",
            channels=1,
            max_pixels=1000,
            min_side=8,
            max_input_bytes=3 << 20,
            max_memory_bytes=500 << 20,
            max_seconds=9,
            box_frame="upright",
        ),
        splits={"train": 0.5, "test": 0.5},
        shards={"train": 8, "test": 4},
        shard_size_mb=64,
        shards_multiple_of=4,
        seed=7,
        max_bad_fraction=0.5,
    )


@pytest.mark.parametrize(
    ("argv", "channels"),
    [
        ([], None),
        (["--encoding=raw"], 3),
        (["--encoding=raw", "--channels=1"], 1),
        (["--channels=3"], 3),
    ],
    ids=["jpeg_keeps_what_comes", "raw_is_rgb", "raw_gray", "rgb"],
)
def test_channels(argv: list[str], channels: int | None) -> None:
    assert options_of(*argv).image.channels == channels


@pytest.mark.parametrize(
    ("argv", "shards"),
    [
        ([], None),
        (["--shards=6"], {"train": 6, "validation": 6}),
        (["--shards=validation=1,train=6"], {"train": 6, "validation": 1}),
    ],
    ids=["by_size", "one_for_all", "by_name"],
)
def test_shards(argv: list[str], shards: dict[str, int] | None) -> None:
    assert options_of(*argv).shards == shards


@pytest.mark.parametrize("option", ["--columns=image=photo", "--image-root=photos"])
def test_options_of_tables_are_refused_for_a_folder(tmp_path: Path, option: str) -> None:
    sentence = f"{option.partition('=')[0]} is for tables, and {tmp_path} is a folder input"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        options_of("--input", str(tmp_path), option)


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("t.csv", "csv"),
        ("t.csv.gz", "csv"),
        ("t.jsonl", "jsonl"),
        ("part-*.jsonl.gz", "jsonl"),
        ("t.csv.zst", "csv"),
        ("T.CSV", "csv"),
        ("T.JSONL.GZ", "jsonl"),
        ("t.jsonl.bz2", "jsonl"),
        ("spark.csv", "csv"),
        ("spark.parquet/", "parquet"),
        ("t.parquet", "parquet"),
        ("folder", "folder"),
        ("scans", "sroie"),
    ],
)
def test_the_format_follows_from_the_name(tmp_path: Path, path: str, format_: str) -> None:
    (tmp_path / "folder" / "img").mkdir(parents=True)
    for name in ("spark.csv", "spark.parquet"):
        (tmp_path / name).mkdir()
    for name in ("img", "box", "key"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        (tmp_path / "scans" / name / "1").touch()
    source = options_of(f"--input={tmp_path / path}").source
    assert source.format == format_
    in_folder = format_ in ("folder", "sroie")
    assert source.image_root == str(tmp_path / path if in_folder else tmp_path)


def test_a_table_on_a_store_may_be_a_folder() -> None:
    pytest.importorskip("google.cloud.storage")
    source = options_of("--input=gs://b/in/t.parquet/").source
    assert (source.path, source.image_root) == ("gs://b/in/t.parquet", "gs://b/in")


def test_an_image_root_confines_the_images() -> None:
    assert not options_of().source.confine_images
    assert options_of("--image-root=/images").source.confine_images


@pytest.mark.parametrize("name", ["t.csv", "t[1].csv", "*.csv"])
def test_images_lie_beside_a_table_in_a_folder_with_glob_characters(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "scans [2024]"
    folder.mkdir()
    source = options_of(f"--input={folder / name}").source
    assert (source.path, source.image_root) == (str(folder / name), str(folder))


def test_addresses_of_files_are_local_paths() -> None:
    options = options_of(
        "--input=file:///in/a%20b/t.csv", "--output=file:///out", "--image-root=file:///images"
    )
    assert (options.source.path, options.source.image_root) == ("/in/a b/t.csv", "/images")
    assert options.output == "/out"


def test_sroie_as_it_is_downloaded_is_named(tmp_path: Path) -> None:
    for name in ("img/1.jpg", "box/1.txt", "entities/1.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    sentence = (
        f"--input {tmp_path} holds SROIE as it is downloaded: make entities/X.txt key/X.json, and "
        "box/X.txt box/X.csv"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        options_of(f"--input={tmp_path}")


BASE = Base(directory="/out", version=1, completed="", first_shards={"train": 1})


@pytest.fixture
def is_built(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict, str], None]:
    """Puts a dataset with options of images and a layout where others append to."""

    def put(image: dict, layout: str) -> None:
        generation = Generation(
            version=1,
            splits={"train": Split(shards=(), category_counts={"layout": (0,)})},
            counts=Counts(inputs=0, written=0, duplicates=0, quarantined={}),
            build_options={"image": image, "splits": {"train": 1.0}, "seed": 0},
            source_fingerprint="",
            written_by="",
        )
        manifest = Manifest(
            version=1,
            features=(),
            labels=(),
            vocabularies={"layout": (layout,)},
            generations=(generation,),
        )
        monkeypatch.setattr("beam_jobs.arguments.build.read_base", lambda _: (BASE, manifest))
        monkeypatch.setattr("beam_jobs.arguments.build.read_centroids", lambda *_: None)

    return put


def test_a_dataset_with_names_in_another_form_is_not_appended_to(
    is_built: Callable[[dict, str], None],
) -> None:
    """An older tillroll stored names as they were: new ones would be other layouts."""
    is_built(asdict(ImageOptions()), "Cafe\u0301")
    sentence = "layout 'Cafe\u0301' in /out is not in Unicode's form NFC, as an older tillroll"
    with pytest.raises(BuildError, match=f"^{re.escape(sentence)}"):
        options_of("--append")
    is_built(asdict(ImageOptions()), "Caf\u00e9")
    assert options_of("--append").base == BASE


def test_images_are_appended_in_the_form_of_the_dataset(
    is_built: Callable[[dict, str], None],
) -> None:
    for form in (
        {"full_decode": False, "restart_rows": True, "max_side": 333},
        {"encoding": "raw", "raw_size": (64, 32), "channels": 1},
        {},
    ):
        options = ImageOptions(**form)
        is_built(json.loads(json.dumps(asdict(options))), "a")
        assert options_of("--append").image == options
    older = asdict(ImageOptions())
    del older["full_decode"], older["restart_rows"]
    is_built(older, "a")
    assert options_of("--append").image == ImageOptions(full_decode=False)
    for form, flag in ((older, "--restart-rows"), (asdict(ImageOptions()), "--no-full-decode")):
        is_built(form, "a")
        sentence = f"{flag}: the dataset in /out was built without it, and so must"
        with pytest.raises(ValueError, match=f"^{sentence}"):
            build_options(parsed("--append", flag), frozenset([flag]))


def test_the_format_can_be_set(tmp_path: Path) -> None:
    source = options_of(f"--input={tmp_path / 'list.txt'}", "--input-format=csv").source
    assert (source.format, source.path) == ("csv", str(tmp_path / "list.txt"))


def test_local_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = options_of("--input=sub/t.csv", "--output=out", "--image-root=images")
    assert options.source.path == str(tmp_path / "sub" / "t.csv")
    assert options.source.image_root == str(tmp_path / "images")
    assert options.output == str(tmp_path / "out")
    assert options_of("--input=t.csv").source.image_root == str(tmp_path)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        pytest.param(
            ["--input=/nowhere/at/all"],
            "--input /nowhere/at/all is neither a folder nor named .csv, .jsonl or .parquet: check "
            "the path, or set --input-format",
            id="input",
        ),
        pytest.param(
            ["--input=https://example.com/t.csv"],
            "'https://example.com/t.csv' is on no file system that can be read: download what lies "
            "there, and name the files",
            id="input_of_the_web",
        ),
        pytest.param(
            ["--output=az://container/out"],
            "'az://container/out' is on no file system that can be read: write "
            "azfs://ACCOUNT/CONTAINER/PATH",
            id="output_of_azure",
        ),
        pytest.param(
            ["--input=/in/*/t.csv"],
            "--input /in/*/t.csv matches tables in many folders: set --image-root",
            id="many_folders",
        ),
        pytest.param(
            ["--columns=picture=file,shop=s"],
            "--columns knows image, id, layout, group, boxes, not picture, shop",
            id="columns_unknown",
        ),
        *(
            pytest.param(
                [f"--columns={text}"], f"--columns takes KEY=VALUE,…, got {text!r}", id=text
            )
            for text in ("image", "image=", "=file")
        ),
        pytest.param(
            ["--label=total"],
            "label 'total' has no type: write NAME:TYPE, TYPE one of string, int, float, category",
            id="label",
        ),
        pytest.param(
            ["--label=total:int", "--label=total:float"],
            "label 'total' is declared 2 times: keep one",
            id="label_twice",
        ),
        pytest.param(
            ["--shards=many"], "--shards takes a number or NAME=N,…, got 'many'", id="shards"
        ),
        pytest.param(
            ["--shards=train=x,validation=1"],
            "--shards takes a number or NAME=N,…, got 'train=x,validation=1'",
            id="shards_by_name",
        ),
        pytest.param(
            ["--shards=train=1"],
            "shards are given for train, but the splits are train, validation: give a number for "
            "each split, or one for all",
            id="shards_of_one_split",
        ),
        pytest.param(
            ["--shards=6", "--shards-multiple-of=4"],
            "6 shards for split train: the number must be at least 1 and a multiple of "
            "--shards-multiple-of, 4",
            id="shards_multiple_of",
        ),
        *(
            pytest.param(
                [f"--raw-size={text}"],
                f"argument --raw-size: takes HEIGHTxWIDTH in pixels, such as 256x256, got {text!r}",
                id=f"raw_size_{text}",
            )
            for text in ("256", "256x", "x256", "-1x256", "256x256x3", "²x256", "")
        ),
        pytest.param(
            ["--raw-size=8x256"],
            "--raw-size: raw_size must be sides of 16 to 16384 pixels, got (8, 256)",
            id="raw_size_too_small",
        ),
        pytest.param(
            ["--splits=train=0.9"],
            "argument --splits: split fractions must add up to 1, 'train=0.9' adds up to 0.9",
            id="split",
        ),
        pytest.param(["--quality=100"], "--quality must be 1 to 95, got 100", id="quality"),
        pytest.param(["--seed=-1"], "--seed must be 0 to 2**63 - 1, got -1", id="seed"),
        pytest.param(
            ["--max-input-mb=0"],
            "--max-input-mb must be 1 to 1024, got 0",
            id="other_unit",
        ),
        pytest.param(
            ["--max-image-memory-mb=0"],
            "--max-image-memory-mb must be 1 to 1048576, got 0",
            id="other_unit_of_a_limit_that_is_not_one",
        ),
        pytest.param(
            ["--encoding=gif"],
            "argument --encoding: must be one of jpeg, raw, got 'gif'",
            id="choice",
        ),
        pytest.param(
            ["--channels=2"],
            "argument --channels: must be one of auto, 1, 3, got '2'",
            id="channels",
        ),
        pytest.param(
            ["--max-input-mb=x"],
            "argument --max-input-mb: must be a whole number, got 'x'",
            id="number",
        ),
    ],
)
def test_arguments_that_are_not_allowed(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(argv, capsys) == sentence


@pytest.mark.parametrize(
    "argument",
    ["--shards=train=1,train=2,validation=1", "--columns=image=a,image=b"],
    ids=["shards", "columns"],
)
def test_a_key_given_twice_is_refused(argument: str) -> None:
    option, _, rest = argument.partition("=")
    key = rest.partition("=")[0]
    with pytest.raises(ValueError, match=f"^{option} .*{key}"):
        options_of(argument)


def test_input_and_output_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_known_args([])
    assert ended.value.code == 2
    assert "the following arguments are required: --input, --output" in capsys.readouterr().err


def test_beams_options_are_left_to_beam() -> None:
    args, others = build_parser().parse_known_args(
        ["--input=a", "--output=b", "--runner=DataflowRunner", "--project", "p", "--region=r"]
    )
    assert args.runner == "DataflowRunner"
    assert others == ["--project", "p", "--region=r"]


def test_help_names_defaults() -> None:
    text = build_parser().format_help()
    assert re.search(r"are scaled down\s+\(default:\s+1024\)", text)
    assert "%(" not in text
