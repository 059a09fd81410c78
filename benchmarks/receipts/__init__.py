"""Drawn receipt images with exact ground truth.

`python -m benchmarks.receipts OUT_DIR` or `generate` writes them; `corpus` says what is written.
"""

from benchmarks.receipts.corpus import generate

__all__ = ["generate"]
