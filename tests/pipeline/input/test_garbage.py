"""Garbage is collected by one thread alone, as often as Python would."""

import json

from tests.support.processes import run_python

# Four threads make garbage that knows in which thread it is destroyed.
PROGRAM = """
import gc, json, os, threading, time

from pipeline.input.garbage import collect_apart

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        threads.add(threading.current_thread().name)

def work():
    while not done.is_set():
        kept = [Cycle() for _ in range(100)]
        time.sleep(0.001)

threads, done = set(), threading.Event()
{start}
workers = [threading.Thread(target=work) for _ in range(4)]
for each in workers:
    each.start()
deadline = time.monotonic() + 60
while not threads and time.monotonic() < deadline:
    time.sleep(0.01)
done.set()
for each in workers:
    each.join()
child = os.fork()
if not child:
    os._exit(gc.isenabled())
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([sorted(threads), gc.isenabled(), status]))
"""


def ran(start: str) -> list:
    return json.loads(run_python("-c", PROGRAM.replace("{start}", start)).stdout)


def test_no_other_thread_destroys_anything():
    assert ran("collect_apart()") == [["garbage"], False, 1]


def test_without_it_others_do():
    threads, is_enabled, child_enabled = ran("")
    assert "garbage" not in threads
    assert threads
    assert is_enabled
    assert child_enabled


def test_who_collects_otherwise_is_left_alone():
    program = "import gc; gc.disable(); from pipeline.input.garbage import collect_apart\n"
    done = run_python(
        "-c", program + "collect_apart(); import threading; print(threading.enumerate())"
    )
    assert "garbage" not in done.stdout
