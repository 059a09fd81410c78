"""The rows from the subtotal to the change."""

from benchmarks.receipts.content import Purchase
from benchmarks.receipts.layout import Layout
from benchmarks.receipts.rows import Gap, Row, Separator, spread_row, table_row, text_row

_STYLES: dict[str, tuple[int, int, str]] = {
    # style: character width, height, frame
    "bold": (1, 1, "none"),
    "large": (2, 2, "none"),
    "inverse": (1, 2, "inverse"),
    "boxed": (1, 2, "boxed"),
    "wide": (1, 2, "none"),
}


def total_rows(layout: Layout, purchase: Purchase) -> list[Row]:
    """Subtotal, tax, total, payment and change, as the layout has them."""
    totals, market = layout.totals, layout.market
    words, columns = market.words, layout.paper.columns
    added_tax = not market.tax_included
    rows: list[Row] = []
    if totals.subtotal or added_tax:
        text = market.amount(purchase.items_cents)
        rows.append(spread_row(words.subtotal, text, columns=columns))
    if added_tax or totals.tax_block == "line":
        rows += _tax_lines(layout, purchase)
    rows += _total(layout, purchase)
    if totals.item_count:
        count = sum(item.quantity for item in purchase.items)
        rows.append(text_row(f"{words.item_count}: {count}", columns=columns))
    label = words.card if purchase.by_card else words.cash
    rows.append(spread_row(label, market.amount(purchase.paid_cents), columns=columns))
    change = purchase.paid_cents - purchase.total_cents
    if change:
        rows.append(spread_row(words.change, market.amount(change), columns=columns))
    if totals.tax_block in ("table", "by_rate") and not added_tax:
        rows.append(Separator(style=layout.minor_separator))
        by_rate = totals.tax_block == "by_rate"
        rows += _tax_lines(layout, purchase) if by_rate else _tax_table(layout, purchase)
    return rows


def _total(layout: Layout, purchase: Purchase) -> list[Row]:
    totals, market = layout.totals, layout.market
    width, height, frame = _STYLES[totals.style]
    label = market.words.total[totals.label % len(market.words.total)]
    amount = market.amount(purchase.total_cents, symbol=totals.symbol)
    columns = layout.paper.columns
    if (len(label) + len(amount) + 2) * width > columns:
        width = 1
    row = spread_row(
        label, amount, columns=columns, width=width, height=height, bold=True, frame=frame
    )
    return [Gap(lines=0.3), row, Gap(lines=0.3)]


def _tax_lines(layout: Layout, purchase: Purchase) -> list[Row]:
    market, columns = layout.market, layout.paper.columns
    name = market.tax_name or market.words.tax
    return [
        spread_row(
            f"{name} {share.letter} {market.percent(share.percent)}",
            market.amount(share.tax_cents),
            columns=columns,
        )
        for share in purchase.taxes
    ]


def _tax_table(layout: Layout, purchase: Purchase) -> list[Row]:
    market, columns = layout.market, layout.paper.columns
    words = market.words
    name = market.tax_name or words.tax
    third = (columns - 8) / 3
    stops = (8, 8 + third, 8 + 2 * third, columns)
    rows: list[Row] = [table_row((name, words.net, name, words.gross), stops=stops, left=0)]
    for share in purchase.taxes:
        cents = (share.net_cents, share.tax_cents, share.gross_cents)
        rate = f"{share.letter} {market.percent(share.percent)}"
        rows.append(table_row((rate, *map(market.amount, cents)), stops=stops, left=0))
    return rows
