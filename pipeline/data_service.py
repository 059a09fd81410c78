"""Runs input pipelines for trainers: `python -m pipeline.data_service DATA_DIR --host HOST`."""

import os
import signal
from collections.abc import Sequence

from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from pipeline.arguments import add_dataset
from pipeline.distribution.data_service import DataService
from pipeline.distribution.host_memory import keep_host_memory
from pipeline.records.info import load_info
from schemas.command_line import CommandParser

_PORT = 5050


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; it has no end of its own."""
    parser = CommandParser(
        "pipeline.data_service",
        "[DATA_DIR] --host HOST",
        "Reads, decodes and augments batches on this machine for trainers on others.",
        epilog="A trainer takes the batches of one or more of these services with --services. Each "
        "must see the dataset under the same path as the trainer. Whoever reaches the ports can "
        "have files of this machine read: open them to the trainers only.",
    )
    add_dataset(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="name or address of this machine as trainers know it (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        metavar="PORT",
        help="port that trainers are told (default: %(default)s)",
    )
    parser.add_argument(
        "--worker-port",
        type=int,
        default=_PORT + 1,
        metavar="PORT",
        help="port at which they then fetch batches (default: %(default)s)",
    )
    args = parser.parse(argv)
    try:
        # Loads the file system, too, should TensorFlow need another one's.
        info = load_info(args.data_dir, version=args.version)
        keep_host_memory()
        service = DataService(args.host, args.port, args.worker_port)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"the data service of {info.data_dir} listens at {service.address}", flush=True)
    while True:
        signal.pause()  # not the service's `join`, in which Python handles no signal


if __name__ == "__main__":
    run_program(main)
