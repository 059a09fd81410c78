"""The plan of a forgetting, from what was found."""

import unicodedata
from dataclasses import replace

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.forgetting.plan import make_plan
from beam_jobs.forgetting.search import Found
from beam_jobs.options import MAX_FORGOTTEN_IDS, Base, ForgetOptions
from schemas.excluded import Excluded, ExcludedRecord
from schemas.file_names import index_name, shard_name, version_file
from schemas.manifest import Counts, FileChecksum, Generation, Manifest, Shard, Split
from schemas.receipt import receipt_features

SUM = FileChecksum(size_bytes=1, crc32c=1)


def listings(version: int) -> dict[str, FileChecksum]:
    names = [f"quarantine/rejected.{end}-00000-of-00001" for end in ("jsonl", "tfrecord")]
    names.append("duplicates/duplicates.jsonl-00000-of-00001")
    return {version_file(version, name): SUM for name in names}


def generation(version: int, numbers: range) -> Generation:
    shards = tuple(
        Shard(
            name=shard_name("train", number),
            records=4,
            size_bytes=1,
            crc32c=1,
            index_crc32c=1,
            lookup_crc32c=1,
            summary_crc32c=1,
            dali_index_crc32c=1,
        )
        for number in numbers
    )
    records = 4 * len(shards)
    return Generation(
        version=version,
        splits={"train": Split(shards=shards, category_counts={"layout": (records,)})},
        counts=Counts(inputs=records, written=records, duplicates=0, quarantined={}),
        source_fingerprint="00",
        written_by="",
        files=listings(version),
    )


GENERATIONS = (generation(1, range(3)), generation(2, range(3, 5)), generation(3, range(5, 6)))
MANIFESTS = [
    Manifest(
        version=version,
        features=receipt_features(()),
        labels=(),
        vocabularies={"layout": ("a",)},
        generations=GENERATIONS[:version],
    )
    for version in (1, 2, 3)
]
BASE = Base(directory="data", version=3, completed="", first_shards={"train": 6})
OPTIONS = ForgetOptions(output="data", base=BASE, ids=("a", "b", "c"))
NOTHING = Excluded(dataset_digest="")


def index(number: int) -> str:
    return index_name(shard_name("train", number))


def test_shards_are_numbered_over_all_generations() -> None:
    found = [
        Found(name=index(5), ids=("a",), positions=(3,)),
        Found(name=index(3), ids=("b", "c"), positions=(0, 2)),
    ]
    plan = make_plan(MANIFESTS, found, NOTHING, OPTIONS)
    assert [
        (task.generation, task.position, task.shard.name, task.number, task.removed)
        for task in plan.shards
    ] == [
        (1, 0, "receipts-train-00003.tfrecord", 0, (0, 2)),
        (2, 0, "receipts-train-00005.tfrecord", 1, (3,)),
    ]
    assert plan.ended == (2, 3)
    assert plan.missing == ()
    assert plan.listings == ()


def test_versions_end_that_hold_it_and_no_others() -> None:
    for number, ended in ((0, (1, 2, 3)), (4, (2, 3)), (5, (3,))):
        plan = make_plan(MANIFESTS, [Found(name=index(number), ids=("a",))], NOTHING, OPTIONS)
        assert plan.ended == ended
        assert plan.missing == ("b", "c")
    plan = make_plan(MANIFESTS, [], NOTHING, OPTIONS)
    assert (plan.ended, plan.shards, plan.missing) == ((), (), ("a", "b", "c"))


def test_listings_are_numbered_over_all_generations() -> None:
    held = [
        version_file(version, f"{name}-00000-of-00001")
        for version, name in (
            (3, "duplicates/duplicates.jsonl"),
            (1, "duplicates/duplicates.jsonl"),
            (2, "quarantine/rejected.jsonl"),
        )
    ]
    plan = make_plan(MANIFESTS, [Found(name=name, ids=("a",)) for name in held], NOTHING, OPTIONS)
    assert [(task.generation, *task.sums, *task.new_names) for task in plan.listings] == [
        (
            1,
            "versions/00002/quarantine/rejected.tfrecord-00000-of-00001",
            "versions/00002/quarantine/rejected.jsonl-00000-of-00001",
            "versions/00004/quarantine/rejected.tfrecord-00000-of-00001",
            "versions/00004/quarantine/rejected.jsonl-00000-of-00001",
        ),
        *(
            (
                at,
                f"versions/{at + 1:05d}/duplicates/duplicates.jsonl-00000-of-00001",
                f"versions/00004/duplicates/duplicates.jsonl-{number:05d}-of-00002",
            )
            for number, at in enumerate((0, 2))
        ),
    ]


def test_damaged_records_go_with_their_shard_or_all() -> None:
    excluded = NOTHING
    for number, position in ((3, 1), (5, 0)):
        record = ExcludedRecord(position=position, id="d", offset=0, fault="")
        excluded = excluded.adding(shard_name("train", number), [record])
    found = [Found(name=index(3), ids=("a",), positions=(3,))]
    plan = make_plan(MANIFESTS, found, excluded, OPTIONS)
    assert [(task.shard.name, task.removed) for task in plan.shards] == [
        ("receipts-train-00003.tfrecord", (1, 3))
    ]
    plan = make_plan(MANIFESTS, found, excluded, replace(OPTIONS, excluded=True))
    assert [task.removed for task in plan.shards] == [(1, 3), (0,)]
    assert plan.ended == (2, 3)


def test_too_many_ids_are_refused() -> None:
    ids = tuple(map(str, range(MAX_FORGOTTEN_IDS + 1)))
    with pytest.raises(
        ValueError, match="100,001 ids are too many to forget at once: give at most"
    ):
        replace(OPTIONS, ids=ids)


def test_an_id_is_found_in_any_form_of_unicode() -> None:
    nfc, nfd = (unicodedata.normalize(form, "reçu") for form in ("NFC", "NFD"))
    for stored in (nfc, nfd):
        found = [Found(name=index(0), ids=(stored,), positions=(0,))]
        plan = make_plan(MANIFESTS, found, NOTHING, replace(OPTIONS, ids=("a", nfd, nfc)))
        assert plan.missing == ("a",)
    assert make_plan(MANIFESTS, [], NOTHING, replace(OPTIONS, ids=(nfd, nfc))).missing == (nfc,)
