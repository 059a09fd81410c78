"""Times all-reduces between workers, as the strategy "multi_worker" makes them.

Use: `python -m benchmarks.harness.all_reduce NUMBERS…` on each worker of TF_CONFIG. The first one
prints the median seconds of an all-reduce of each number of float32 numbers, as a JSON list.
"""

import json
import os
import statistics
import sys
import time

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf

from pipeline.distribution.strategies import is_chief, make_strategy

_WARMUP, _REPEATS = 5, 30


def main() -> int:
    """Runs the command."""
    strategy = make_strategy("multi_worker")
    seconds = [_time(strategy, int(numbers)) for numbers in sys.argv[1:]]
    if is_chief(strategy):
        print(json.dumps(seconds))
    return 0


def _time(strategy: tf.distribute.Strategy, numbers: int) -> float:
    @tf.function
    def reduce() -> tf.Tensor:
        values = strategy.run(lambda: tf.random.uniform([numbers]))
        return tf.reduce_sum(strategy.reduce("SUM", values, axis=None))

    @tf.function
    def alone() -> tf.Tensor:
        return tf.reduce_sum(
            strategy.experimental_local_results(strategy.run(lambda: tf.random.uniform([numbers])))[
                0
            ]
        )

    # What the numbers themselves cost is no part of an all-reduce.
    return max(0.0, _median_s(reduce) - _median_s(alone))


def _median_s(function: tf.types.experimental.GenericFunction) -> float:
    seconds = []
    for _ in range(_WARMUP + _REPEATS):
        started = time.perf_counter()
        function().numpy()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[_WARMUP:])


if __name__ == "__main__":
    sys.exit(main())
