"""The numbers of a receipt, and a bit for each word beside them."""

import pytest

from beam_jobs.near_duplicates.text_fingerprint import text_fingerprint
from schemas.fingerprints import TIME_OF_DAY, number_code


def digits(*lines: str) -> list[str]:
    """Digits of the numbers in some lines."""
    numbers = text_fingerprint(lines).numbers
    return [str(number & (TIME_OF_DAY - 1))[1:] for number in numbers]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("TOTAL RM 12.50", ["1250"]),
        ("RM12.50", ["1250"]),
        ("12,50 €", ["1250"]),
        ("$12.50-", ["1250"]),
        ("1,000.00 1000.00", ["100000"]),  # distinct ones only
        ("0.50", ["050"]),
        ("INV-A4711/b", ["4711"]),
        ("12/03/2018 08:15", ["12032018", "0815"]),
        ("2 X 5.00", ["500"]),  # a single digit is no number
        ("barcode 9556939040116", ["939040116"]),  # its last nine digits
        ("\uff11\uff12:30", ["1230"]),  # full width
        ("١٢٫٥٠ ٣٤\u2028٥٦", ["1250", "34", "56"]),
        ("12\u00a034\u300056", ["12", "34", "56"]),
        ("TOTAL", []),
        ("", []),
    ],
)
def test_a_number_is_the_digits_of_a_word(line: str, numbers: list[str]):
    assert digits(line) == numbers


@pytest.mark.parametrize(
    ("line", "is_time"),
    [
        ("8:13:39 PM", True),
        ("time:08:15", True),
        ("2018-06-12T12:31:05", True),
        ("8.15", False),
        ("1:2500", False),
        ("81:15", False),
        ("08:75", False),
        ("20180815", False),
    ],
)
def test_a_time_of_day_is_known(line: str, is_time: bool):
    [number] = text_fingerprint([line]).numbers
    assert (number >= TIME_OF_DAY) is is_time


def test_words_count_in_any_case_and_order():
    shop = text_fingerprint(["99 SPEED MART", "Kuala Lumpur"])
    assert shop.text_bits.bit_count() == 4
    assert text_fingerprint(["lumpur, KUALA", "(mart) speed 98"]).text_bits == shop.text_bits
    assert text_fingerprint(["no RM 1 *** 12.50"]).text_bits == 0
    misread = text_fingerprint(["99 SPEED MARF", "Kuala Lumpur"]).text_bits
    assert (misread & shop.text_bits).bit_count() == 3


def test_a_receipt_has_at_most_256_numbers():
    fingerprint = text_fingerprint([str(number) for number in range(10, 500)])
    assert fingerprint.numbers == [number_code(str(number)) for number in range(10, 266)]


@pytest.mark.parametrize("part", ["A", "字", ".", "1", "A1", ":", "1:", "12:3", "A ", "\u0301"])
def test_long_words_take_linear_time(part: str):
    """A regular expression that reads on to the end from each start would take hours."""
    fingerprint = text_fingerprint([part * (1_000_000 // len(part))])
    assert len(fingerprint.numbers) == any(character.isdigit() for character in part)
