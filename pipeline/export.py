"""Exports the model of a training run: `python -m pipeline.export RUN_DIR --out MODEL`."""

import argparse
import os
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from pipeline.serving.saved_model import export
from pipeline.training.trained_model import load_trained_model


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.export",
        description="Writes the model of a training run as a SavedModel that takes image files.",
    )
    parser.add_argument("run_dir", help="run folder of pipeline.train")
    parser.add_argument("--out", required=True, metavar="MODEL", help="directory to write")
    parser.add_argument(
        "--checkpoint",
        choices=("best", "newest"),
        default="best",
        help="of the lowest validation loss, or the last one (default: %(default)s)",
    )
    parser.add_argument(
        "--data-dir", help="dataset directory, where it is no longer where it was trained on"
    )
    args = parser.parse_args(argv)
    try:
        trained = load_trained_model(
            args.run_dir, checkpoint=args.checkpoint, data_dir=args.data_dir
        )
        export(trained.task, trained.model, trained.info, args.out)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    print(f"exported the model of step {trained.step:,}: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
