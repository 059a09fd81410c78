"""Exports the model of a training run: `python -m pipeline.export RUN_DIR --output MODEL`."""

import os
from collections.abc import Sequence

from pipeline.keras_backend import require_tensorflow
from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
    require_tensorflow("pipeline.export")  # before Keras is imported, which may fail

from pipeline.serving.saved_model import export
from pipeline.training.run_files import StoreError
from pipeline.training.trained_model import load_trained_model
from schemas.command_line import CommandParser, Flag, Options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = CommandParser(
        "pipeline.export",
        "RUN_DIR --output MODEL",
        "Writes the model of a training run as a SavedModel that takes image files.",
    )
    run = Options(
        load_trained_model,
        data_dir=Flag(
            metavar="DATA_DIR",
            default="where the run read it",
            help="dataset directory, if it has moved",
        ),
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run folder of pipeline.train")
    parser.add_argument("--output", required=True, metavar="MODEL", help="directory to write")
    run.add_to(parser, "checkpoint", "data_dir")
    args = parser.parse(argv)
    try:
        trained = run.make(args)
        export(trained.task, trained.model, trained.info, args.output)
    except (ValueError, FileNotFoundError, StoreError) as error:
        parser.error(str(error))
    print(f"exported the model of step {trained.step:,}: {args.output}")
    return 0


if __name__ == "__main__":
    run_program(main)
