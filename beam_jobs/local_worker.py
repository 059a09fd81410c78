"""Beam's worker process for local builds, without its chatter."""

import logging
import os
import sys

if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # before Beam is imported, which logs as it starts
    from apache_beam.runners.worker import sdk_worker_main

    # It raises the level of all logs until it knows the options, and greets.
    logging.getLogger(sdk_worker_main.__name__).setLevel(logging.CRITICAL)
    sdk_worker_main.main(sys.argv)
    # Beam awaits one worker after the other, and taking Python apart takes each half a second.
    logging.shutdown()
    os._exit(0)
