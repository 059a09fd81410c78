"""A model in the memory of a process."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.models.model import load
from beam_jobs.models.saved_model import SavedModel
from tests.support import fake_model


def test_threads_load_a_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_model.put_in_place(monkeypatch)
    saved_models = sys.modules["tensorflow"].saved_model
    load_once = saved_models.load
    begun: list[str] = []
    second = threading.Event()

    def count_loads(directory: str, tags: list[str]) -> Any:
        begun.append(Path(directory).name)
        if len(begun) > 1:
            second.set()
        second.wait(0.5)  # a chance for another thread to begin, too
        return load_once(directory, tags)

    monkeypatch.setattr(saved_models, "load", count_loads)
    models = [
        SavedModel.read(str(fake_model.write_model(tmp_path / name)), "serving_default")
        for name in ("first", "second")
    ]
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(load, models[:1] * 4))
    assert begun == ["first"]
    assert all(each is loaded[0] for each in loaded)
    assert load(models[1]) is not loaded[0]
    assert load(models[0]) is loaded[0]
    assert begun == ["first", "second"]
