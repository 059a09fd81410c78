"""The file of a study: processes that were killed at any moment, full disks, damaged lines."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from pipeline.searching import journal
from pipeline.searching.journal import JournalError
from pipeline.searching.study import JOURNAL
from tests.support.processes import ROOT, TIME_LIMIT_S
from tests.support.searches import open_study

# Is killed between the line and the release of the lock.
KILLED = """import os, signal
from pathlib import Path
from tests.support.searches import open_study

study = open_study(Path("search"), trials=2)
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
study.study.enqueue_trial({})
"""


def test_a_process_that_was_killed_with_the_lock_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment)
    assert killed.returncode == -9
    monkeypatch.setattr(journal, "_STALE_S", 3)
    opened = []
    # Another machine may have mounted the folder under another name.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "search").rename(tmp_path / "elsewhere" / "search")
    monkeypatch.chdir(tmp_path / "elsewhere")
    thread = threading.Thread(
        target=lambda: opened.append(open_study(Path("search"), trials=5)), daemon=True
    )
    thread.start()
    thread.join(TIME_LIMIT_S)
    [study] = opened
    assert len(study.frozen_trials()) == 5


@pytest.mark.parametrize("torn", [b'{"op_code":4,"wor', b"x" * 10_000, b"{}"])
def test_a_line_that_was_not_written_to_its_end_is_cut_off(tmp_path: Path, torn: bytes):
    study = open_study(tmp_path, trials=2)
    before = (tmp_path / JOURNAL).read_bytes()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(torn)
    assert len(study.frozen_trials()) == 2
    assert len(open_study(tmp_path, trials=4).frozen_trials()) == 4
    after = (tmp_path / JOURNAL).read_bytes()
    assert after.startswith(before)
    assert all("op_code" in json.loads(line) for line in after.splitlines())
    study.study.enqueue_trial({})
    assert len(study.study.trials) == 5


def test_a_file_without_a_whole_line_is_begun_anew(tmp_path: Path):
    (tmp_path / JOURNAL).write_bytes(b'{"op_co')
    assert len(open_study(tmp_path, trials=2).frozen_trials()) == 2


def test_a_damaged_line_is_named(tmp_path: Path):
    open_study(tmp_path, trials=2)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:10] + lines[2]
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    sentence = (
        f"line 3 of the study's file {tmp_path / JOURNAL} is damaged: restore the file from a "
        "backup, or choose another --search-dir"
    )
    with pytest.raises(JournalError, match=f"^{re.escape(sentence)}$"):
        open_study(tmp_path, trials=2)
