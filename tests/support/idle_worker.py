"""A worker that joins its cluster, and takes part in nothing: others wait for it in C++."""

import time

from pipeline.distribution.strategies import make_strategy

if __name__ == "__main__":
    make_strategy("multi_worker")
    print("{}", flush=True)
    time.sleep(1000)
