"""`python -m benchmarks.receipts OUT_DIR`: writes a corpus of receipt images."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.receipts.contact_sheet import contact_sheet
from benchmarks.receipts.corpus import generate
from benchmarks.receipts.scene import SIZES


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line, writes the corpus, returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.receipts", description=__doc__)
    parser.add_argument("out_dir", type=Path, help="a new or empty directory")
    parser.add_argument("--count", type=int, default=2000, help="receipts (%(default)s)")
    parser.add_argument("--layouts", type=int, default=60, help="layouts (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all choices (%(default)s)")
    size_help = "photo: 0.3 to 12 megapixels, small: 0.3 to 0.5 (%(default)s)"
    parser.add_argument("--size", choices=SIZES, default="photo", help=size_help)
    parser.add_argument("--workers", type=int, help="processes (one a processor)")
    parser.add_argument("--contact-sheet", type=Path, help="also draw an overview to this image")
    args = parser.parse_args(argv)
    started = time.perf_counter()
    try:
        records = generate(
            args.out_dir,
            count=args.count,
            layouts=args.layouts,
            seed=args.seed,
            size=args.size,
            workers=args.workers,
            progress=sys.stderr.isatty(),
        )
        if args.contact_sheet:
            contact_sheet(records, args.contact_sheet)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    elapsed_s = time.perf_counter() - started
    print(f"{args.count} receipts in {elapsed_s:.1f} s, ground truth in {records}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
