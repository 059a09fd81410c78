"""The build from and to HDFS, on a WebHDFS server."""

import gzip
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("hdfs")

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from pyarrow.parquet import write_table as write_parquet

from beam_jobs.build import main
from beam_jobs.errors import BuildError
from beam_jobs.storage import files
from beam_jobs.verify import main as verify_main
from tests.support.dataset_files import EXCLUDED, MANIFEST
from tests.support.receipts import contents, draw_receipt, read_table, write_receipts, write_table
from tests.support.webhdfs import WebHdfs, serve

LABELS = ("--label=total:float", "--label=language:category")


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[WebHdfs]:
    root = tmp_path / "hdfs"
    root.mkdir()
    with serve(root) as server:
        FileSystems.set_options(PipelineOptions(options(server)))
        yield server


def options(server: WebHdfs) -> list[str]:
    return ["--hdfs_host=127.0.0.1", f"--hdfs_port={server.port}", "--hdfs_user=reader"]


def run(server: WebHdfs, source: str, *others: str) -> int:
    """Builds hdfs://out on one worker, unless told otherwise."""
    arguments = ["--input", source, "--output", "hdfs://out", "--quiet", "--workers=1", *others]
    return main([*arguments, *options(server)])


def quarantined(server: WebHdfs) -> dict[str, int]:
    (generation,) = json.loads((server.root / "out" / MANIFEST).read_text())["generations"]
    return generation["counts"]["quarantined"]


@pytest.mark.parametrize("workers", [1, 2])
def test_hdfs_gives_the_same_bytes(table: Path, dataset: Path, hdfs: WebHdfs, workers: int):
    shutil.copytree(table.parent, hdfs.root / "in")
    source = f"hdfs://in/{table.name}"
    assert run(hdfs, source, "--shards=4", *LABELS, f"--workers={workers}") == 0
    assert contents(hdfs.root / "out") == contents(dataset)
    assert {path.name for path in hdfs.root.iterdir()} == {"in", "out"}


def test_folders_below_folders(build, hdfs: WebHdfs, tmp_path: Path):
    names = ("a/1.jpg", "a/2.jpg", "a/2023/05/3.jpg", "b [1]*/4.jpg", "b [1]*/ü=5+6%20#7.jpg")
    for number, name in enumerate(names):
        draw_receipt(hdfs.root / "shops?" / name, number)
    assert run(hdfs, "hdfs://shops?/") == 0
    assert build(hdfs.root / "shops?", tmp_path / "out") == 0
    assert contents(hdfs.root / "out") == contents(tmp_path / "out")
    assert quarantined(hdfs) == {}


def test_resumes_with_a_missing_image_and_replaces(build, hdfs: WebHdfs, tmp_path: Path):
    table = write_receipts(hdfs.root / "in", {"a": 6})
    rows = [*read_table(table), {"id": "gone", "image": "images/gone.jpg", "layout": "a"}]
    write_table(hdfs.root / "in" / "bad.jsonl", rows)
    assert run(hdfs, "hdfs://in/bad.jsonl", "--max-bad-fraction=0.1") == 1
    assert list((hdfs.root / "out" / "_staging" / "prepared").glob("*.npz"))
    assert run(hdfs, "hdfs://in/bad.jsonl", "--max-bad-fraction=0.5") == 0
    assert quarantined(hdfs) == {"file_missing": 1}

    with pytest.raises(SystemExit):
        run(hdfs, "hdfs://in/receipts.jsonl")
    assert run(hdfs, "hdfs://in/receipts.jsonl", "--overwrite", "--shards=2") == 0
    assert build(table, tmp_path / "new", "--shards=2") == 0
    assert contents(hdfs.root / "out") == contents(tmp_path / "new")


def test_verify_finds_a_flipped_byte_and_excludes_its_record(dataset: Path, hdfs: WebHdfs, capsys):
    shutil.copytree(dataset, hdfs.root / "out")
    assert verify_main(["hdfs://out", "--quiet", "--workers=1", *options(hdfs)]) == 0
    shard = sorted((hdfs.root / "out").glob("receipts-*.tfrecord"))[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    capsys.readouterr()
    assert verify_main(["hdfs://out", "--quiet", "--workers=1", *options(hdfs)]) == 1
    assert f"hdfs://out/{shard.name}: has another checksum" in capsys.readouterr().out
    exclude = ["hdfs://out", "--exclude", "--quiet", "--workers=1", *options(hdfs)]
    assert verify_main(exclude) == 0
    assert f"1 of these records is excluded: hdfs://out/{EXCLUDED}" in capsys.readouterr().out
    assert json.loads((hdfs.root / "out" / EXCLUDED).read_text())["shards"].keys() == {shard.name}


PATTERNS = ("f/**", "f/*", "f/*.b", "f/?.a", "f/d/*", "f/*/*.a", "f/[[]x]/*", "f/[[]x]/d/**")


@pytest.mark.parametrize("pattern", [*PATTERNS, "f/d/1.a", "no/*", "no/**", "no"])
def test_patterns_match_what_they_match_locally(hdfs: WebHdfs, pattern: str):
    for name in ("1.a", "2.b", "d/1.a", "d/d/2.a", "[x]/3.a", "[x]/d/4.a"):
        files.write(f"hdfs://f/{name}", name.encode())
    (hdfs.root / "f" / "empty.b").mkdir()
    local = [(each.path, each.size_in_bytes) for each in files.list_files(f"{hdfs.root}/{pattern}")]
    found = files.list_files(f"hdfs://{pattern}")
    assert bool(found) == (not pattern.startswith("no"))
    paths = [(each.path.replace("hdfs:/", str(hdfs.root)), each.size_in_bytes) for each in found]
    assert sorted(paths) == sorted(local)


@pytest.mark.parametrize("is_namenode", [True, False])
def test_the_version_of_a_file_changes_with_its_contents(hdfs: WebHdfs, is_namenode: bool):
    hdfs.knows_rename_options = is_namenode
    assert files.state("hdfs://f/a[1]*") is None
    files.write("hdfs://f/a[1]*", b"one")
    first = files.state("hdfs://f/a[1]*")
    assert first is not None
    assert first.size_bytes == 3
    written_ns = (hdfs.root / "f" / "a[1]*").stat().st_mtime_ns
    files.write("hdfs://f/a[1]*", b"two")
    if is_namenode:  # whose files keep their time when they are copied
        os.utime(hdfs.root / "f" / "a[1]*", ns=(written_ns, written_ns))
    else:
        os.utime(hdfs.root / "f" / "a[1]*", ns=(1, 1))
    assert files.state("hdfs://f/a[1]*") not in (first, None)
    assert files.state("hdfs://f") is None


@pytest.mark.parametrize("path", ["in*/receipts.jsonl", "in[*]/receipts.jsonl"])
def test_a_table_in_a_folder_with_glob_characters(table: Path, hdfs: WebHdfs, path: str):
    shutil.copytree(table.parent, hdfs.root / "in*")
    assert run(hdfs, f"hdfs://{path}", "--image-root=hdfs://in*", "--dry-run") == 0


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.parquet", "spark.parquet"])
def test_tables_of_every_kind(hdfs: WebHdfs, capsys, name: str):
    columns = {"image": ["a.jpg", "b.jpg"], "layout": ["x", "y"]}
    parquet = pa.BufferOutputStream()
    write_parquet(pa.table(columns), parquet, row_group_size=1)
    csv = b"image,layout\na.jpg,x\nb.jpg,y\n"
    data = {
        "t.csv": csv,
        "t.csv.gz": gzip.compress(csv),
        "t.jsonl": b'{"image": "a.jpg", "layout": "x"}\n{"image": "b.jpg", "layout": "y"}',
        "t.parquet": parquet.getvalue().to_pybytes(),
        "spark.parquet/part-0": parquet.getvalue().to_pybytes(),
        "spark.parquet/_SUCCESS": b"",
    }
    for path in (each for each in data if each.startswith(name)):
        files.write(f"hdfs://in/{path}", data[path])
    kind = name.split(".")[1]
    assert run(hdfs, f"hdfs://in/{name}", f"--input-format={kind}", "--dry-run") == 0
    assert "inputs         2\n" in capsys.readouterr().out


@pytest.mark.parametrize("knows_rename_options", [True, False])
def test_moves_replace_what_is_there(hdfs: WebHdfs, knows_rename_options: bool):
    hdfs.knows_rename_options = knows_rename_options
    for data in (b"old", b"new", b""):
        files.write("hdfs://folder/file", data)
        assert contents(hdfs.root) == {"folder/file": data}
    files.move([("hdfs://folder/file", "hdfs://other/new/folder/file")])
    assert contents(hdfs.root) == {"other/new/folder/file": b""}
    files.delete_tree("hdfs://other")
    files.delete_tree("hdfs://no")
    assert not files.exists("hdfs://other")


@pytest.mark.parametrize(
    ("refusal", "kind", "sentence"),
    [
        ((404, "FileNotFoundException"), FileNotFoundError, "hdfs://f/1 does not exist"),
        ((403, "AccessControlException"), OSError, "hdfs://f/1 could not be read: HdfsError"),
        ((403, "StandbyException"), BuildError, "hdfs://f/1 could not be read in several tries"),
        ((500, "RuntimeException"), BuildError, "hdfs://f/1 could not be read in several tries"),
    ],
)
def test_refusals(hdfs: WebHdfs, monkeypatch: pytest.MonkeyPatch, refusal, kind, sentence: str):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    files.write("hdfs://f/1", b"data")
    hdfs.refused = {"/f/1": refusal, "/f": refusal}
    with pytest.raises(kind, match=sentence):
        files.read("hdfs://f/1")
    if kind is FileNotFoundError:
        assert not files.exists("hdfs://f/1")
        assert files.list_files("hdfs://f/*") == []
        return
    # What can't be accessed is not thereby missing: a dataset might be replaced unasked.
    with pytest.raises(BuildError, match=r"hdfs://f/1 can't be accessed: .*; check --hdfs_host"):
        files.exists("hdfs://f/1")
    for pattern in ("hdfs://f/1", "hdfs://f/*"):
        with pytest.raises(BuildError, match=r"hdfs://f/.* can't be accessed: .*check --hdfs_host"):
            files.list_files(pattern)


def test_paths_without_a_namenode_are_refused(hdfs: WebHdfs, capsys):
    with pytest.raises(SystemExit):
        run(hdfs, "hdfs://in/receipts.jsonl", "--output=hdfs:///out")
    assert verify_main(["hdfs:///out", *options(hdfs)]) == 1
    error = capsys.readouterr().err
    sentence = "hdfs:///out/COMPLETED is not a path that Beam knows: write hdfs://folder/file"
    assert error.count(sentence) == 2
