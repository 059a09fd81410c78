"""The options that checkpoints remember."""

from pipeline.training.run_identity import RunIdentity

THEN = {
    "input.balance.temperature": 0.3,
    "input.reading.run_length": 1,
    "input.augmentations.0": "Crop",
    "input.augmentations.0.side.0": 0.85,
    "input.augmentations.1": "JpegArtefacts",
    "input.augmentations.2": "Light",
    "input.augmentations.3": "Erase",
    "input.augmentations.3.grey.0": 0.0,
}
NOW = {
    "input.balance.alpha": 0.3,
    "input.reading.block_length": 1,
    "input.augmentations.0": "RandomZoom",
    "input.augmentations.0.side.0": 0.85,
    "input.augmentations.1": "JpegArtifacts",
    "input.augmentations.2": "UnevenLight",
    "input.augmentations.3": "Erase",
    "input.augmentations.3.gray.0": 0.0,
}


def test_names_of_earlier_checkpoints_are_understood():
    then = RunIdentity.from_json(RunIdentity(stream=THEN, updates={}).to_json())
    now = RunIdentity(stream=NOW, updates={})
    assert now.stream_changes(then) == []


def test_other_values_under_earlier_names_are_changes():
    then = RunIdentity(stream={**THEN, "input.balance.temperature": 1.0}, updates={})
    now = RunIdentity(stream={**NOW, "input.augmentations.2": "Shadow"}, updates={})
    assert [str(change) for change in now.stream_changes(then)] == [
        "input.augmentations.2: UnevenLight then, Shadow now",
        "input.balance.alpha: 1.0 then, 0.3 now",
    ]


def test_ops_of_users_keep_their_names():
    identity = RunIdentity(stream={"input.augmentations.0": "Crop"}, updates={})
    assert identity.stream_changes(identity) == []
