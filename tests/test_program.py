"""The commands as programs: stop signals while they start, and outputs that nobody reads."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import own_lines
from tests.test_help import COMMANDS

pytestmark = pytest.mark.slow

NEEDS = {"beam_jobs": "apache_beam", "pipeline": "tensorflow"}
ROOT = Path(__file__).parents[1]


def skip_unless_installed(command: str) -> None:
    package = command.partition(".")[0]
    if package not in NEEDS or importlib.util.find_spec(NEEDS[package]) is None:
        pytest.skip(f"{command} can't be run in this environment")


@pytest.mark.parametrize(
    ("command", "number"),
    [
        *((command, signal.SIGINT) for command in COMMANDS),
        *((command, signal.SIGTERM) for command in ("beam_jobs.build", "pipeline.train")),
    ],
)
def test_a_signal_while_it_is_imported_ends_it_with_a_sentence(
    command: str, number: signal.Signals
) -> None:
    skip_unless_installed(command)
    process = subprocess.Popen(
        [sys.executable, "-m", command, "--help"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    libraries = Path(f"/proc/{process.pid}/maps")
    while "/numpy/" not in libraries.read_text() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    if command == "pipeline.train" and number == signal.SIGTERM:
        # It is held back until the run has begun, so that workers stop at the same step.
        assert (own_lines(error), process.returncode) == ([], 0)
        return
    assert own_lines(error) == [f"stopped by {number.name}"]
    assert process.returncode == 128 + number


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_ended_ends_it_quietly(lines: int) -> None:
    program = (
        "import sys\n"
        "from schemas.program import run_program\n"
        "def main():\n"
        "    sys.stdin.read()\n"  # until the test has closed what it writes to
        f"    print('line\\n' * {lines})\n"
        "    return 3\n"
        "run_program(main)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    process.stderr.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_the_output_can_not_encode(encoding: str) -> None:
    """A container whose locale is C; file names may hold lone surrogates, too."""
    text = "256 × 128 café → \udce9"
    program = (
        "from schemas.program import run_program\n"
        f"def main(): print({text!a}); return 0\n"
        "run_program(main)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == (b"", 0)
    assert done.stdout == text.encode(encoding, "backslashreplace") + b"\n"


def test_another_broken_pipe_is_an_error_and_a_status_is_passed_on() -> None:
    for body, status, sentence in (
        ("raise BrokenPipeError(32, 'of a socket')", 1, "of a socket"),
        ("return 3", 3, ""),
    ):
        program = f"from schemas.program import run_program\ndef main(): {body}\nrun_program(main)"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == status
        assert sentence in done.stderr


LIBRARY = "os.write(1, b'printed by a library')"
PRINTS = """
import os
from schemas.program import begin_program, run_program
def main():
    print("a line")
    return 0
begin_program()
with open("file", "w") as file:
    LIBRARY
run_program(main)
""".replace("LIBRARY", LIBRARY)


@pytest.mark.parametrize(
    ("output", "status", "message"),
    [
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        ("< /dev/null <&- >&- 2>&-", 0, ""),
        ("> /dev/full", 1, "error: standard output can't be written: No space left on device\n"),
    ],
)
@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["", "unbuffered"])
def test_standard_output_that_is_closed_or_full(
    output: str, status: int, message: str, buffering: dict[str, str], tmp_path: Path
) -> None:
    command = PRINTS if "-" in output else PRINTS.replace(LIBRARY, "pass")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {output}', "sh", sys.executable, "-c", command],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), **buffering},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, message)
    assert (tmp_path / "file").read_text() == "", "a library has printed into a file"


def test_an_error_of_another_file_is_no_error_of_the_output() -> None:
    program = (
        "from schemas.program import run_program\n"
        "def main(): raise OSError(28, 'No space left on device')\n"
        "run_program(main)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "standard output" not in done.stderr


def test_garbage_is_collected_again_once_all_is_imported() -> None:
    program = (
        "import gc\n"
        "from schemas.program import begin_program, run_program\n"
        "def main():\n"
        "    return 3 if gc.isenabled() and gc.get_freeze_count() > 1000 else 4\n"
        "begin_program()\n"
        "assert not gc.isenabled()\n"
        "run_program(main)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, "")
