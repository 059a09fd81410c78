"""Layouts are many and different, and their receipts add up."""

from collections import Counter

import pytest

from benchmarks.receipts.compose import compose
from benchmarks.receipts.content import draw_branch, draw_purchase
from benchmarks.receipts.languages import WORDS
from benchmarks.receipts.layout import draw_layout
from benchmarks.receipts.markets import MARKETS
from benchmarks.receipts.popularity import Popularity
from benchmarks.receipts.randomness import stream
from benchmarks.receipts.rows import TextRow


@pytest.mark.parametrize("seed", [0, 1])
def test_layouts_have_a_long_tail(seed: int) -> None:
    popularity = Popularity(layouts=60, seed=seed)
    counts = Counter(popularity.layout_of(index) for index in range(2000))
    assert counts[0] > 400  # the most common has a fifth of all receipts or more
    assert counts[0] > counts[3] > counts[20]
    assert [counts[layout] for layout in range(40, 60)] == [1] * 20


def test_layouts_are_different_and_in_every_language() -> None:
    layouts = [draw_layout(0, index) for index in range(60)]
    assert {layout.market.language for layout in layouts} == set(WORDS)
    assert len({layout.market for layout in layouts[: len(MARKETS)]}) == len(MARKETS)
    forms = {(layout.type, layout.header, layout.items, layout.totals) for layout in layouts}
    assert len(forms) == 60
    assert layouts == [draw_layout(0, index) for index in range(60)]


@pytest.mark.parametrize(
    ("locale", "cents", "plain", "marked"),
    [
        ("en_GB", 123456, "1,234.56", "£1,234.56"),
        ("de_DE", 123456, "1.234,56", "1.234,56 €"),
        ("de_CH", 123456, "1'234.56", "1'234.56 CHF"),
        ("pl_PL", 5, "0,05", "0,05 zł"),
        ("en_US", -250, "-2.50", "-$2.50"),
    ],
)
def test_amounts_are_written_as_in_their_country(
    locale: str, cents: int, plain: str, marked: str
) -> None:
    market = next(market for market in MARKETS if market.locale == locale)
    assert market.amount(cents) == plain
    assert market.amount(cents, symbol=True) == marked


@pytest.mark.parametrize(
    ("language", "text", "capitals"),
    [("tr", "Pirinç", "PİRİNÇ"), ("el", "Γάλα πλήρες", "ΓΑΛΑ ΠΛΗΡΕΣ"), ("fr", "Épi", "ÉPI")],
)
def test_capitals_are_those_of_the_language(language: str, text: str, capitals: str) -> None:
    market = next(market for market in MARKETS if market.language == language)
    assert market.upper(text) == capitals


@pytest.mark.parametrize("index", range(0, 60, 3))
def test_amounts_add_up_and_are_printed(index: int) -> None:
    layout = draw_layout(0, index)
    purchase = draw_purchase(stream(0, "amounts", index), layout)
    items = sum(item.quantity * item.unit_cents for item in purchase.items)
    tax = sum(share.tax_cents for share in purchase.taxes)
    added = 0 if layout.market.tax_included else tax
    assert purchase.items
    assert items > 0
    assert purchase.total_cents == items + added
    assert purchase.paid_cents >= purchase.total_cents
    rows = compose(layout, draw_branch(0, layout, 0), purchase)
    texts = [cell.text for row in rows if isinstance(row, TextRow) for cell in row.cells]
    market = layout.market
    assert market.amount(purchase.total_cents, symbol=layout.totals.symbol) in texts
    for item in purchase.items:
        assert any(market.amount(item.amount_cents) in text for text in texts)
    date = purchase.moment.strftime(market.date_formats[layout.meta.date_format])
    assert any(date in text for text in texts)
