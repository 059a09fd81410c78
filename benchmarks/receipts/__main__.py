"""Writes a corpus of receipt images, with a table of their ground truth."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.command import benchmark_parser
from benchmarks.receipts.contact_sheet import contact_sheet
from benchmarks.receipts.corpus import generate
from benchmarks.receipts.scene import SIZES


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line, writes the corpus, returns the exit status."""
    parser = benchmark_parser("receipts", "OUT_DIR", __doc__)
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="a new or empty directory")
    parser.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="number of receipts (default: %(default)s)",
    )
    parser.add_argument(
        "--layouts",
        type=int,
        default=60,
        metavar="N",
        help="number of layouts (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="SEED",
        help="seed of all random choices (default: %(default)s)",
    )
    size_help = "photo: 0.3 to 12 megapixels, small: 0.3 to 0.5 (default: %(default)s)"
    parser.add_argument("--size", choices=SIZES, default="photo", help=size_help)
    parser.add_argument(
        "--second-photos",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the receipts that are photographed a second time, in another scene; these "
        "photos come last (default: %(default)s)",
    )
    parser.add_argument(
        "--single-share",
        type=float,
        default=1 / 3,
        metavar="SHARE",
        help="share of the layouts that have one receipt each (default: a third)",
    )
    parser.add_argument(
        "--balanced",
        type=int,
        default=0,
        metavar="N",
        help="further receipts of each layout, as a balanced test set; they come last "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of processes (default: one per core)"
    )
    parser.add_argument(
        "--contact-sheet", type=Path, metavar="FILE", help="also draw an overview to this image"
    )
    args = parser.parse(argv)
    started = time.perf_counter()
    try:
        records = generate(
            args.out_dir,
            count=args.count,
            layouts=args.layouts,
            seed=args.seed,
            size=args.size,
            single_share=args.single_share,
            second_photos=args.second_photos,
            balanced=args.balanced,
            workers=args.workers,
            progress=sys.stderr.isatty(),
        )
        if args.contact_sheet:
            contact_sheet(records, args.contact_sheet)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    elapsed_s = time.perf_counter() - started
    photos = ""
    if second := round(args.count * args.second_photos):
        photos = f" and {second} second photos of them"
    if args.balanced:
        photos += f" and {args.balanced} of each of {args.layouts} layouts"
    print(f"{args.count} receipts{photos} in {elapsed_s:.1f} s, ground truth in {records}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
