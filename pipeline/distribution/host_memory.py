"""Memory of the host, which a process keeps from batch to batch."""

import ctypes
import os
import warnings
from pathlib import Path

import tensorflow as tf

_USE_BFC = "TF_CPU_ALLOCATOR_USE_BFC"
# Memory limits of a container, in bytes or "max", of the second and the first version of cgroups.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# Limits of the C library: their numbers in malloc.h, and the highest values that it sets by itself.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAX_BLOCK_BYTES, _MAX_UNUSED_BYTES = 32 << 20, 64 << 20
_LIMIT_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_host_memory() -> None:
    """Keeps the memory of a batch for the next one; call it before TensorFlow runs anything.

    The C library returns blocks above 32 MB to the kernel as soon as they are free, and the kernel
    clears them again page by page. Depending on the processor, this takes up to a fifth of the time
    of decoding and half of the time of reading pixels, see docs/benchmarks.md. TensorFlow's
    best-fit allocator keeps such blocks. So does oneDNN's, which TensorFlow uses by itself on
    processors with AVX512_VNNI. Records are strings, whose memory comes from the C library: its
    limits are raised to the highest values that it sets by itself.

    The price is memory: a process holds the memory of its largest batches until it ends. The
    allocator is chosen by environment variables, which processes started later inherit. Variables
    that are set already are left alone, and so is an allocator in LD_PRELOAD. At the memory limit
    of the machine, or of its container, the allocator raises TensorFlow's ResourceExhaustedError.

    Warns:
      RuntimeWarning: TensorFlow has run something, and can't change its allocator any more.
    """
    preloaded = "malloc" in os.environ.get("LD_PRELOAD", "")
    if preloaded or os.environ.get(_USE_BFC, "").lower() in ("false", "0"):
        return
    if _USE_BFC not in os.environ and _tensorflow_has_run():
        warnings.warn(
            "TensorFlow has run something and can't change its allocator any more, so large "
            "batches may come slower: call make_strategy() or keep_host_memory() before anything "
            f"else of TensorFlow, or set {_USE_BFC}=true",
            RuntimeWarning,
            stacklevel=2,
        )
    else:
        os.environ.setdefault(_USE_BFC, "true")
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(memory_bytes() >> 20))  # or 64 GB
    if not any(name in os.environ for name in _LIMIT_VARIABLES):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _MAX_BLOCK_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _MAX_UNUSED_BYTES)


def _tensorflow_has_run() -> bool:
    """Tells whether TensorFlow has set up its devices, and with them the allocator."""
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    try:  # the only public call that tells: it refuses a new number once devices are set up
        tf.config.threading.set_inter_op_parallelism_threads(threads + 1)
    except RuntimeError:
        return True
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return False


def memory_bytes() -> int:
    """Returns the memory of the machine, or the limit of the container of this process."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _CONTAINER_LIMITS:
        if path.exists() and (text := path.read_text().strip()).isdecimal():  # else "max"
            limits.append(int(text))
    return min(limits)
