"""Prints whether SIGTERM is heeded while a strategy is made, and afterwards."""

import json
import os
import signal
import time

from pipeline.distribution.stop_request import StopRequest, hold_sigterm

if __name__ == "__main__":
    hold_sigterm()  # before threads are started

import tensorflow as tf

from pipeline.distribution.strategies import make_strategy


def terminate() -> None:
    """Sends SIGTERM, and gives threads the time to take it."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)


def main() -> None:
    """Runs the program."""
    make = tf.distribute.MultiWorkerMirroredStrategy

    def make_and_terminate() -> tf.distribute.Strategy:
        strategy = make()
        terminate()
        return strategy

    tf.distribute.MultiWorkerMirroredStrategy = make_and_terminate
    with StopRequest() as stop:
        make_strategy("multi_worker")
        print(json.dumps({"meanwhile": stop.is_made}), flush=True)
    with StopRequest() as stop:
        terminate()
        print(json.dumps({"afterwards": stop.is_made}), flush=True)


if __name__ == "__main__":
    main()
