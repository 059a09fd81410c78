"""Lines of a log that a power cut or an editor has damaged."""

import json

import pytest

from pipeline.training.run_log import log_lines, unreadable_lines

WHOLE = [
    {"step": 10, "loss": 2.5, "dropped_gradients": 3},
    {"step": 10, "time": {"step": 1.5, "start": 2}, "at": 1.7e9, "ended": True},
    {"step": 10, "changed": {"learning_rate": [0.1, None]}},
    {"step": 20, "loss": None},
    {"step": 20, "validation/loss": 1.5},
]


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 64,
        b"\xff\xfe\x80",
        b"hello",
        b"",
        b"{}",
        b"[1]",
        b"[" * 100_000,
        b'{"loss": 1}',
        b'{"step": "20", "loss": 1}',
        b'{"step": 20, "loss": "1"}',
        b'{"step": 20, "validation/loss": [1]}',
        b'{"step": 20, "changed": 1}',
        b'{"step": 20, "time": 1, "at": 1}',
        b'{"step": 20, "time": {"step": "1"}, "at": 1}',
        b'{"step": 20, "time": {"step": 1}}',
        b'{"step": 20, "lo\0\0\0": 1}'[:-6],
    ],
    ids=lambda line: repr(line[:24]),
)
def test_damaged_lines_are_left_out(damage: bytes):
    lines = [json.dumps(line).encode() for line in WHOLE]
    log = b"\n".join([lines[0], damage, *lines[1:], damage]) + b'\n{"step": 30'  # being written
    assert log_lines(log) == WHOLE
    assert unreadable_lines(log) == [2, len(WHOLE) + 2]


@pytest.mark.parametrize("log", [b"", b'{"step": 1'])
def test_a_log_without_a_whole_line(log: bytes):
    assert log_lines(log) == unreadable_lines(log) == []
