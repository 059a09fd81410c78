"""Descriptors of receipts by their text."""

import numpy as np
import pytest

from beam_jobs.layouts.text import SIZE, text_descriptor, text_descriptors

HEADER = ["ALDI SÜD", "Hauptstr. 12", "50667 Köln"]


def cosine(left: list[str], right: list[str]) -> float:
    a, b = (text_descriptor(lines).astype(float) for lines in (left, right))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize(
    "other",
    [
        ["Aldi Süd", "HAUPTSTR. 12", "50667 köln"],
        ["ALDI  SÜD ", "Hauptstr. 7", "10115 Köln"],
        ["ＡＬＤＩ SÜD", "", "Hauptstr. 12", "  ", "50667 Köln"],
        [*HEADER, "Milch 1,09", "Summe 1,09"],
    ],
    ids=["case", "numbers", "form", "further lines"],
)
def test_what_differs_between_receipts_of_a_layout_does_not_count(other: list[str]):
    assert text_descriptor(other).tolist() == text_descriptor(HEADER).tolist()


def test_the_first_line_counts_twice():
    assert cosine(HEADER, [HEADER[0], "Nebenweg 5", "10115 Berlin"]) > 0.5
    assert cosine(HEADER, ["Getränke Kühn", *HEADER[1:]]) < 0.5


def test_a_typing_error_changes_little_and_another_shop_much():
    assert cosine(HEADER, ["ALDI SUD", *HEADER[1:]]) > 0.7
    assert cosine(HEADER, ["Bäckerei Müller", "Marktplatz 3", "80331 München"]) < 0.2


@pytest.mark.parametrize("lines", [[], [""], ["  ", "\t"]])
def test_no_text_is_like_nothing(lines: list[str]):
    assert not text_descriptor(lines).any()


def test_descriptors_stay_as_they_are():
    # Datasets hold them: another value for the same text needs another version.
    descriptor = text_descriptor(["AB"])
    places = np.flatnonzero(descriptor)
    found = dict(zip(places.tolist(), descriptor[places].tolist(), strict=True))
    assert found == {878: 2, 998: -2}  # of " ab" and "ab "


def test_many_receipts_have_a_row_each():
    assert text_descriptors([]).shape == (0, SIZE)
    both = text_descriptors([HEADER, []])
    assert both.dtype == np.int8
    assert both.tolist() == [text_descriptor(HEADER).tolist(), [0] * SIZE]


def test_a_line_without_end_is_cut():
    assert np.abs(text_descriptor(["x1y" * 1_000_000])).max() <= 127
