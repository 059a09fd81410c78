"""Beam's worker process for local builds, without its messages."""

import logging
import os
import signal
import sys
from contextlib import redirect_stderr
from pathlib import Path

from beam_jobs.running.import_messages import hide_import_messages

if __name__ == "__main__":
    # Ctrl-C reaches all processes of a terminal. The launching process says what it means.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    hide_import_messages()
    logging.basicConfig(level=logging.CRITICAL)  # before Beam is imported, which logs as it starts
    from apache_beam.runners.worker import sdk_worker_main

    # It raises the level of all logs until it knows the options, and greets.
    logging.getLogger(sdk_worker_main.__name__).setLevel(logging.CRITICAL)
    # It prints the traceback of each failure, which the launching process is sent as well.
    with Path(os.devnull).open("w") as nothing, redirect_stderr(nothing):
        sdk_worker_main.main(sys.argv)
    # Beam awaits one worker after the other, and taking Python apart takes each half a second.
    logging.shutdown()
    os._exit(0)
