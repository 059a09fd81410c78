"""Local shards mapped into memory, so that TensorFlow reads records without Python and parsing.

`tf.raw_ops.ImmutableConst` maps a file, too. But TensorFlow runs an eager operation as a function
and folds the constants in it, for which it copies the whole file: 0.1 s for 590 MB.
"""

import ctypes
import itertools
import mmap
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.records.files import reason
from pipeline.records.info import DatasetInfo, why_replaced
from pipeline.records.open_file import FileState, OpenFile
from pipeline.records.read_failure import explain_file
from pipeline.records.stored_shards import CHANGED
from schemas.index import RecordIndex
from schemas.manifest import Shard
from schemas.tfrecord import unframe

_PARALLEL_READS = 16
_PARSE = "raise the limit, or have the records read and parsed by Reading(portable=True)"
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # of Linux; the module `mmap` does not name them
_PROT_NONE = 0
# Paths of the shards that this process has verified, with what was: state, checksum, left out.
_VERIFIED: dict[str, tuple[FileState, int, tuple[int, ...]]] = {}
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.mmap.restype = ctypes.c_void_p
_LIBRARY.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long)
_LIBRARY.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_shards(
    info: DatasetInfo, paths: Sequence[str], *, verify: bool
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Maps local shards into one array, behind each other.

    The array is the kernel's cache of the files, so nothing is read before it is used. No file
    stays open. Nobody may write to the array. The memory is unmapped with the last reference to it.

    Args:
      info: the dataset.
      paths: the shards.
      verify: whether the bytes must have the checksums of the manifest. The process reads a shard
        for that once, and again after it has changed.

    Returns:
      The array, uint8 [bytes], and the position in it of the first byte of each shard, int64
      [shards].

    Raises:
      ValueError: a shard is missing, cut off, damaged or can't be read, or the directory no longer
        holds the version.
    """
    shards = [info.shard(Path(path).name) for path in paths]
    pages = [-(-shard.size_bytes // mmap.PAGESIZE) for shard in shards]
    *starts, size = itertools.accumulate((each * mmap.PAGESIZE for each in pages), initial=0)
    try:
        region = _reserve(size)
    except OSError as error:
        raise ValueError(
            f"{size >> 20:,} MiB of shards can't be mapped into memory: {reason(error)}; {_PARSE}"
        ) from error

    def map_shard(path: str, shard: Shard, start: int) -> None:
        info.check_index(shard)
        try:
            file = OpenFile(Path(path))
            _check(info, file, path, shard, verify=verify)
        except (OSError, ValueError) as error:
            raise ValueError(explain_file(info, path, error)) from error
        try:
            _map(ctypes.addressof(region) + start, shard.size_bytes, file)
        except OSError as error:
            raise ValueError(
                f"{path} can't be mapped into memory: {reason(error)}; {_PARSE}"
            ) from error

    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        list(pool.map(map_shard, paths, shards, starts))
    # The files are those of the version if COMPLETED names it now, as a build deletes COMPLETED
    # before it touches any other file.
    if replaced := why_replaced(info):
        raise ValueError(replaced)
    return np.frombuffer(region, np.uint8), np.array(starts, np.int64)


def _check(info: DatasetInfo, file: OpenFile, path: str, shard: Shard, *, verify: bool) -> None:
    """Checks a shard, or of a damaged one the records that are not left out.

    Raises:
      OSError: it can't be read.
      ValueError: it is not the one of the build, or a record is damaged.
    """
    state, left_out = file.state(), info.excluded.positions(shard.name)
    checked = (state, shard.crc32c, left_out)
    is_verified = not verify or _VERIFIED.get(path) == checked
    if left_out:
        _check_records(file, info.shard_index(shard), left_out, is_verified=is_verified)
    elif state.size_bytes != shard.size_bytes:
        raise ValueError(f"it has {state.size_bytes} bytes, the manifest says {shard.size_bytes}")
    elif not is_verified and file.checksum() != (shard.size_bytes, shard.crc32c):
        raise ValueError(CHANGED)
    if verify:
        _VERIFIED[path] = checked


def _check_records(
    file: OpenFile, index: RecordIndex, left_out: Sequence[int], *, is_verified: bool
) -> None:
    rows = np.delete(np.arange(len(index)), left_out)
    offset, length = index.offset[rows], index.length[rows]
    if file.state().size_bytes < max(offset + length):
        raise ValueError("the file ends inside a record")
    if not is_verified:
        for start, size in zip(offset.tolist(), length.tolist(), strict=True):
            unframe(file.read(size, start), start)


def _reserve(size_bytes: int) -> Any:
    """Reserves addresses, and returns the array of ctypes that begins there."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    address = _call_mmap(None, size_bytes, _PROT_NONE, flags, -1)
    region = (ctypes.c_uint8 * size_bytes).from_address(address)
    # Not when Python ends, as threads of TensorFlow still read then.
    weakref.finalize(region, _LIBRARY.munmap, address, size_bytes).atexit = False
    return region


def _map(address: int, size_bytes: int, file: OpenFile) -> None:
    """Maps a file to reserved addresses."""
    # Not MAP_SHARED, which some file systems of user space lack.
    _call_mmap(address, size_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE | _MAP_FIXED, file.fileno())


def _call_mmap(
    address: int | None, size_bytes: int, protection: int, flags: int, descriptor: int
) -> int:
    mapped = _LIBRARY.mmap(address, size_bytes, protection, flags, descriptor, 0)
    if mapped == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(mapped)
