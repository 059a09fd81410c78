"""Drawn receipts as two datasets: a long tail to train on, and as many of each layout to test."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.receipts.corpus import RECORDS_NAME, generate
from pipeline.records.info import DatasetInfo, load_info


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The receipts of the benchmark.

    Attributes:
      count: receipts to train on, whose layouts follow Zipf's law.
      layouts: number of layouts.
      test_per_layout: receipts of each layout to test with.
      size: height and width of the stored images in pixels.
      seed: seeds what is drawn.
    """

    count: int
    layouts: int
    test_per_layout: int
    size: int
    seed: int = 0

    def datasets(self, folder: Path) -> tuple[DatasetInfo, DatasetInfo]:
        """Draws the receipts and builds both datasets, unless the folder holds them already.

        Returns:
          The dataset to train on, with the split "train", and the one to test with, "test".

        Raises:
          ValueError: no receipt was drawn of some layout, so the two do not have the same ones.
        """
        drawn = folder / "drawn"
        if not (drawn / RECORDS_NAME).exists():
            generate(
                drawn,
                count=self.count,
                layouts=self.layouts,
                seed=self.seed,
                size="small",
                single_share=0.0,
                balanced=self.test_per_layout,
                progress=sys.stderr.isatty(),
            )
        with (drawn / RECORDS_NAME).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        train, test = (
            self._built(folder / split, split, chosen, drawn)
            for split, chosen in (("train", rows[: self.count]), ("test", rows[self.count :]))
        )
        if train.layouts != test.layouts:
            missing = sorted({*test.layouts} - {*train.layouts})
            raise ValueError(
                f"{len(missing)} layouts have no receipt to train on, such as {missing[0]}: draw "
                f"more than {self.count} receipts, or fewer than {self.layouts} layouts"
            )
        return train, test

    def _built(
        self, output: Path, split: str, rows: Sequence[dict[str, Any]], drawn: Path
    ) -> DatasetInfo:
        table = drawn / f"{split}.jsonl"
        if not output.exists():
            # The group would only say which receipts stay in one split, and there is one.
            kept = [{name: row[name] for name in ("id", "image", "layout")} for row in rows]
            table.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
            subprocess.run(
                [
                    *(sys.executable, "-m", "beam_jobs.build", "--quiet"),
                    *(f"--input={table}", f"--output={output}", f"--splits={split}=1"),
                    *("--encoding=raw", f"--raw-size={self.size}x{self.size}", "--channels=1"),
                    "--shards=8",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return load_info(str(output))
