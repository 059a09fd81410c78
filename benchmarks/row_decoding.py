"""Windows/s of decoding some rows of JPEG files, with and without restart rows.

Windows have the width of their image and begin at random rows. Three ways take turns, each in a
process of its own: the file is decoded whole and cut; decoding ends at the last row of the window,
as TensorFlow's own operation does; or the file is cut first, at the restart rows before and behind
the window. Each makes the same pixels.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.input_options import add_measuring_options
from benchmarks.harness.timing import (
    Contender,
    Effort,
    Result,
    by_turns,
    machine,
    table,
    to_json,
)
from pipeline.input.restart_rows import cut_rows
from pipeline.records.info import load_info
from pipeline.records.sequence import Records
from schemas.restart_rows import all_restart_rows

WAYS = ("whole file, cut", "to the last row", "restart rows")
_EFFORT = Effort(batch_size=32, batches=60, warmup=20)
_IMAGES = 64
_WINDOWS = 4096


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("row_decoding", "DATA_DIR", __doc__)
    parser.add_argument("data_dir", metavar="DATA_DIR", help="dataset directory with restart rows")
    parser.add_argument(
        "--height",
        type=int,
        default=32,
        metavar="PIXELS",
        help="rows of a window (default: %(default)s)",
    )
    add_measuring_options(parser, rounds=5)
    args = parser.parse(argv)
    try:
        if args.height < 1:
            raise ValueError(f"--height must be at least 1, got {args.height}")
        if not all_restart_rows(load_info(args.data_dir).manifest):
            raise ValueError(
                f"{args.data_dir} has no restart rows: build it with --restart-rows, or rewrite it "
                "with python -m beam_jobs.compact --restart-rows"
            )
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    contenders = {
        way: Contender(
            function="benchmarks.row_decoding:windows",
            options={"data_dir": args.data_dir, "way": way, "height": args.height},
        )
        for way in WAYS
    }
    rounds = by_turns(contenders, dict.fromkeys(contenders, _EFFORT), rounds=args.rounds)
    results = {way: Result.of(each) for way, each in rounds.items()}
    rows: list[dict[str, Any]] = [
        {"way": way, **result.columns(results[WAYS[0]])} for way, result in results.items()
    ]
    print(table(rows))
    print(", ".join(machine().values()))
    if args.json:
        args.json.write_text(to_json({"results": rows}))
    return 0


def windows(data_dir: str, *, way: str, height: int) -> Iterator[Any]:
    """Batches of windows of the first images of a dataset, uint8 [batch, height, width, 1].

    Images are decoded to grayscale. Those below `height` rows are left out, and columns beyond the
    narrowest image are, too.
    """
    records = Records(data_dir, "train")
    images = [records[position] for position in range(min(_IMAGES, len(records)))]
    images = [image for image in images if image["image/height"] >= height]
    if not images:
        raise ValueError(f"no image of {data_dir} has {height} rows or more")
    files = tf.constant([image["image/encoded"] for image in images])
    width = min(int(image["image/width"]) for image in images)
    heights = np.array([image["image/height"] for image in images])
    random = np.random.default_rng(0)
    choices = random.integers(0, len(images), _WINDOWS)
    tops = random.integers(0, heights[choices] - height + 1)

    def decode(choice: tf.Tensor, top: tf.Tensor) -> tf.Tensor:
        file, window = files[choice], tf.stack([top, 0, height, width])
        if way == "whole file, cut":
            return tf.io.decode_jpeg(file, 1)[top : top + height, :width]
        if way == "restart rows":
            file, window = cut_rows(file, window)
        return tf.image.decode_and_crop_jpeg(file, window, 1)

    places = tf.data.Dataset.from_tensor_slices((choices, tops.astype(np.int32)))
    decoded = places.repeat().map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return iter(decoded.batch(_EFFORT.batch_size).prefetch(tf.data.AUTOTUNE))


if __name__ == "__main__":
    sys.exit(main())
