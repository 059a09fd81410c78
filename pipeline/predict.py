"""Writes what an exported model predicts for a split: `python -m pipeline.predict MODEL DATA_DIR`.

A line of JSON for each record: its id, the labels it carries among those the model was trained on
("truth"), and the predictions. A mask, a prediction whose name ends in "mask", is written as a
grayscale PNG file, white for 1, and the line names it, relative to the folder of the lines; it
shows what the model saw, the receipt fitted into the model's input.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.arguments import add_dataset
from pipeline.config import InputConfig
from pipeline.dataset import make_evaluation_dataset
from pipeline.distribution.host_memory import keep_host_memory
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.read_failure import read_failure_in
from pipeline.serving.saved_model import IMAGES, read_description
from schemas.command_line import CommandParser, Flag, Options

_DESCRIPTION = """\
Writes what an exported model predicts for a split, a line of JSON for each record: its id, the
labels it carries among those the model was trained on ("truth"), and the predictions.

A mask, a prediction whose name ends in "mask", is written as a grayscale PNG file, white for 1, and
the line names it, relative to the folder of the lines. It shows what the model saw, the receipt
fitted into the model's input.
"""
_Array = npt.NDArray[Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0, or 1 where a record can't be read."""
    parser = CommandParser("pipeline.predict", "MODEL [DATA_DIR]", _DESCRIPTION)
    options = Options(
        predict,
        split=Flag(metavar="SPLIT"),
        output=Flag(metavar="FILE"),
        global_batch_size=Flag(metavar="RECORDS"),
    )
    parser.add_argument("model", metavar="MODEL", help="exported model, a SavedModel directory")
    add_dataset(parser)
    options.add_to(parser, "split", "output", "global_batch_size")
    args = parser.parse(argv)
    keep_host_memory()
    try:
        records = options.make(args)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    except tf.errors.OpError as error:
        sentence = read_failure_in(error)
        if sentence is None:
            raise
        print(sentence, file=sys.stderr)
        return 1
    print(f"predicted {records:,} records of split {args.split}: {args.output}")
    return 0


def predict(
    model: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    version: int | None = None,
    split: str = "validation",
    output: Path = Path("predictions.jsonl"),
    global_batch_size: int = 32,
) -> int:
    """Writes the predictions of each record of a split once; returns how many there are.

    Args:
      model: directory that `pipeline.serving.saved_model.export` wrote.
      data_dir: dataset directory, the one the model was trained on or another; None for the one
        that TILLROLL_DATA_DIR names.
      version: version of the dataset; None for the newest.
      split: split to read.
      output: file of JSON lines, which appears when all are written; masks go to a folder
        beside it.
      global_batch_size: records that the model sees at a time.

    Raises:
      ValueError: an argument does not fit the dataset; the sentence says what does.
      FileNotFoundError: there is no exported model, or no finished dataset.
    """
    if global_batch_size < 1:
        raise ValueError(f"global_batch_size must be at least 1, got {global_batch_size}")
    directory = os.fspath(model)
    description = read_description(directory)
    truth = _truth(description, load_info(data_dir, version=version))
    dataset, steps = make_evaluation_dataset(
        tf.distribute.get_strategy(),
        data_dir,
        version=version,
        split=split,
        global_batch_size=global_batch_size,
        config=InputConfig(
            **description["inputs"], features=("image", "id", "weight", *truth.values())
        ),
    )
    # Variables are freed with the model, so it must outlive its signature.
    loaded = tf.saved_model.load(directory)
    batches = dataset.take(steps)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f"{output.name}.partial")
    records = 0
    with partial.open("w", encoding="utf-8") as file:
        for line in _lines(loaded.signatures[IMAGES], batches, truth, output):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            records += 1
    partial.replace(output)
    return records


def _lines(
    signature: Any, batches: Iterable[Mapping[str, Any]], truth: Mapping[str, str], output: Path
) -> Iterator[dict[str, Any]]:
    """Predicts batches, and makes the contents of the line of each record."""
    record = 0
    for batch in batches:
        found = {name: each.numpy() for name, each in signature(images=batch["image"]).items()}
        known = {name: batch[feature].numpy() for name, feature in truth.items()}
        ids, weights = batch["id"].numpy(), batch["weight"].numpy()
        for row in np.flatnonzero(weights):  # the rest is padding
            yield {
                "id": ids[row].decode(),
                "truth": {name: _json_value(values[row]) for name, values in known.items()},
                "predictions": dict(_predictions(found, row, record, output)),
            }
            record += 1


def _truth(description: Mapping[str, Any], info: DatasetInfo) -> dict[str, str]:
    """Labels that the model was trained on, as far as the dataset has them: name to feature."""
    stored = {each.name for each in info.features}
    features = {
        # The name of a category's value, not its id: another dataset numbers them differently.
        name: description["label"] if name == "label" else name
        for name in description["features"]
    }
    return {name: each for name, each in features.items() if f"receipt/{each}" in stored}


def _predictions(
    found: Mapping[str, _Array], row: int, record: int, out: Path
) -> Iterator[tuple[str, Any]]:
    """Names and values of one record; masks are written to files."""
    for name, values in sorted(found.items()):
        if not name.endswith("mask"):
            yield name, _json_value(values[row])
            continue
        path = out.with_name(f"{out.stem}_masks") / f"{name}-{record:08d}.png"
        path.parent.mkdir(exist_ok=True)
        gray = np.clip(np.rint(values[row] * 255), 0, 255).astype(np.uint8)
        path.write_bytes(tf.io.encode_png(gray.reshape(*gray.shape[:2], -1)).numpy())
        yield name, path.relative_to(out.parent).as_posix()


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return [_json_value(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, np.floating) else value.item()


if __name__ == "__main__":
    run_program(main)
