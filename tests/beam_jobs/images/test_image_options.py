"""Image options: which values are allowed, and how large images become."""

import re
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions
from tests.support.image_files import RAW


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_side": 15}, "max_side must be 16 to 65500, got 15"),
        ({"max_side": 65_501}, "max_side must be 16 to 65500, got 65501"),
        ({"quality": 0}, "quality must be 1 to 95, got 0"),
        ({"quality": 96}, "quality must be 1 to 95, got 96"),
        ({"max_pixels": 0}, f"max_pixels must be 1 to {2**31}, got 0"),
        ({"min_side": 0}, "min_side must be 1 to 65500, got 0"),
        ({"max_input_bytes": 0}, f"max_input_bytes must be 1 to {2**30}, got 0"),
        (
            {"max_memory_bytes": 2**20 - 1},
            f"max_memory_bytes must be {2**20} to {2**40}, got {2**20 - 1}",
        ),
        ({"max_seconds": 0}, "max_seconds must be 1 to 86400, got 0"),
        (
            {"raw_size": (256, 15)},
            "raw_size must be sides of 16 to 16384 pixels, got (256, 15)",
        ),
        ({"encoding": "raw"}, "raw images need one fixed size: set channels to 1 or 3"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_options_that_are_not_allowed(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        ImageOptions(**options)


@pytest.mark.parametrize(
    ("options", "typical_bytes"),
    [
        pytest.param(ImageOptions(max_side=1000), 100_000, id="jpeg"),
        pytest.param(RAW, 64 * 32 * 3, id="raw"),
    ],
)
def test_typical_bytes(options: ImageOptions, typical_bytes: int) -> None:
    assert options.typical_bytes == typical_bytes
