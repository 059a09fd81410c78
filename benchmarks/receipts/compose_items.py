"""The rows of the goods that were bought."""

from benchmarks.receipts.content import Item, Purchase
from benchmarks.receipts.layout import Layout
from benchmarks.receipts.rows import Row, Separator, TextRow, shorten, table_row, text_row

_AMOUNT_COLUMNS = 10


def item_rows(layout: Layout, purchase: Purchase) -> list[Row]:
    """The heading, if the layout has one, and a row or two for each item."""
    rows: list[Row] = []
    if layout.items.heading:
        rows += [_heading(layout), Separator(style=layout.minor_separator)]
    for item in purchase.items:
        rows += _item(layout, item)
    return rows


def _heading(layout: Layout) -> TextRow:
    words, columns = layout.market.words, layout.paper.columns
    if layout.items.style == "table":
        labels = (words.description, words.quantity, words.price, words.amount)
        return table_row(_fit(labels, columns), stops=_table_stops(columns), left=0, bold=True)
    if layout.items.style == "quantity_first":
        stops = _counted_stops(columns, len(words.quantity))
        return table_row(
            (words.quantity, words.description, words.amount), stops=stops, left=1, bold=True
        )
    return table_row(
        (words.description, words.amount), stops=_amount_stops(columns), left=0, bold=True
    )


def _item(layout: Layout, item: Item) -> list[TextRow]:
    style, columns = layout.items.style, layout.paper.columns
    market = layout.market
    name = market.upper(item.name) if layout.items.upper else item.name
    amount = market.amount(item.amount_cents, symbol=layout.items.symbol)
    if layout.items.tax_letters:
        amount = f"{amount} {item.tax_letter}"
    price = market.amount(item.unit_cents)
    stops = _amount_stops(columns)
    room = stops[0]
    if style == "table":
        texts = (name, str(item.quantity), price, market.amount(item.amount_cents))
        return [table_row(_fit(texts, columns), stops=_table_stops(columns), left=0)]
    if style == "quantity_first":
        counted = _counted_stops(columns, 2)
        short = shorten(name, counted[1] - counted[0] - 1)
        return [table_row((str(item.quantity), short, amount), stops=counted, left=1)]
    if style == "two_lines":
        count = f"{item.quantity} x {price}"
        detail = table_row((count, amount), stops=stops, left=0, indent=2)
        return [text_row(shorten(name, columns), columns=columns), detail]
    if style == "coded":
        rows = [table_row((shorten(f"{item.code} {name}", room), amount), stops=stops, left=0)]
    else:
        rows = [table_row((shorten(name, room), amount), stops=stops, left=0)]
    if item.quantity > 1:
        count = f"{item.quantity} {'@' if market.language == 'en' else 'x'} {price}"
        indent = 3 if style == "quantity_below" else 0
        rows.append(table_row((count,), stops=(columns,), left=0, indent=indent))
    return rows


def _amount_stops(columns: int) -> tuple[float, ...]:
    return (columns - _AMOUNT_COLUMNS - 1, columns)


def _counted_stops(columns: int, quantity_columns: int) -> tuple[float, ...]:
    return (max(3, quantity_columns), columns - _AMOUNT_COLUMNS - 1, columns)


def _table_stops(columns: int) -> tuple[float, ...]:
    amount, price = 9, 8
    return (
        columns - amount - price - 7,
        columns - amount - price - 2,
        columns - amount - 1,
        columns,
    )


def _fit(texts: tuple[str, ...], columns: int) -> list[str]:
    """The texts cut to the table's columns."""
    starts = (0.0, *(stop + 1 for stop in _table_stops(columns)[:-1]))
    return [
        shorten(text, stop - start)
        for text, start, stop in zip(texts, starts, _table_stops(columns), strict=True)
    ]
