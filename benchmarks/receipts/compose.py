"""From a layout, a shop and a purchase to the rows of a receipt."""

from benchmarks.receipts.compose_items import item_rows
from benchmarks.receipts.compose_totals import total_rows
from benchmarks.receipts.content import Branch, Purchase
from benchmarks.receipts.layout import Layout
from benchmarks.receipts.rows import (
    Cell,
    Gap,
    Graphic,
    Row,
    Separator,
    TextRow,
    spread_row,
    text_row,
    wrapped_rows,
)
from benchmarks.receipts.symbols import printed_code


def compose(layout: Layout, branch: Branch, purchase: Purchase) -> list[Row]:
    """The rows of a receipt, from top to bottom."""
    barcode = _barcode(layout, purchase)
    rows: list[Row] = [Gap(lines=1.2), *_header(layout, branch)]
    if layout.meta.place == "top":
        rows += [Separator(style=layout.minor_separator), *_meta(layout, purchase)]
    if layout.footer.barcode_first and layout.footer.barcode in ("ean13", "code128"):
        rows += barcode
        barcode = []
    rows.append(Separator(style=layout.separator))
    rows += item_rows(layout, purchase)
    rows.append(Separator(style=layout.separator))
    rows += total_rows(layout, purchase)
    if layout.meta.place == "bottom":
        rows += [Separator(style=layout.minor_separator), *_meta(layout, purchase)]
    return [*rows, *_footer(layout), *barcode, Gap(lines=2)]


def _header(layout: Layout, branch: Branch) -> list[Row]:
    header, words = layout.header, layout.market.words
    rows: list[Row] = []
    if header.logo != "none":
        logo = Graphic(kind=header.logo, lines=header.logo_lines, alignment=header.alignment)
        rows += [logo, Gap(lines=0.5)]
    rows += _company(layout, branch)
    details = [*branch.address]
    if header.show_phone:
        details.append(f"{words.phone} {branch.phone}")
    if header.show_tax_id:
        details.append(f"{words.tax_id}: {branch.tax_id}")
    for detail in details:
        rows += wrapped_rows(detail, columns=layout.paper.columns, alignment=header.alignment)
    if header.receipt_title != "none":
        rows += [Gap(lines=0.5), _receipt_title(layout)]
    return rows


def _company(layout: Layout, branch: Branch) -> list[Row]:
    """Makes the rows of the company's name: plain, framed or between stars."""
    header, columns = layout.header, layout.paper.columns
    name = layout.market.upper(branch.company) if header.upper else branch.company
    frame = header.title_style if header.title_style in ("inverse", "boxed") else "none"
    width = header.title_width if len(name) * header.title_width <= columns else 1
    starred = f"** {name} **"
    if header.title_style == "starred" and len(starred) * width <= columns:
        name = starred
    rows: list[Row] = [
        *wrapped_rows(
            name,
            columns=columns,
            alignment="center" if frame != "none" else header.alignment,
            width=width,
            height=header.title_height,
            bold=True,
            frame=frame,
        )
    ]
    return [*rows, Gap(lines=0.4)] if frame != "none" else rows


def _receipt_title(layout: Layout) -> TextRow:
    """Makes the row that says "receipt", "invoice" or the like."""
    style, columns = layout.header.receipt_title, layout.paper.columns
    titles = layout.market.words.receipt
    title = titles[layout.totals.label % len(titles)]
    if style == "starred":
        title = f"*** {title} ***"
    large = style == "large" and len(title) * 2 <= columns
    return text_row(
        title,
        columns=columns,
        alignment="center",
        bold=True,
        height=1 + large,
        width=1 + large,
        frame="inverse" if style == "inverse" else "none",
    )


def _meta(layout: Layout, purchase: Purchase) -> list[Row]:
    meta, words, columns = layout.meta, layout.market.words, layout.paper.columns
    date = date_text(layout, purchase)
    time = purchase.moment.strftime("%H:%M" if layout.index % 2 else "%H:%M:%S")
    moment = f"{date} {time}" if meta.show_time else date
    number_label = words.number[layout.totals.label % len(words.number)]
    number = f"{purchase.number:07d}"
    rows: list[Row]
    if meta.style == "one_line":
        rows = [spread_row(moment, f"#{number[-5:]}", columns=columns)]
    elif meta.style == "pairs":
        rows = [
            text_row(f"{words.date}: {moment}", columns=columns),
            text_row(f"{number_label}: {number}", columns=columns),
        ]
    elif meta.style == "table":
        rows = [spread_row(words.date, date, columns=columns)]
        if meta.show_time:
            rows.append(spread_row(words.time, time, columns=columns))
        rows.append(spread_row(number_label, number, columns=columns))
    else:
        # Two label: value pairs on a line, each with half of the paper.
        left = (f"{words.date}: {date}", f"{words.till}: {purchase.till}")
        right = (time if meta.show_time else "", number)
        rows = [_halves(*pair, columns=columns) for pair in zip(left, right, strict=True)]
    if meta.show_cashier:
        label = words.table if layout.trade == "cafe" else words.cashier
        value = str(purchase.till) if layout.trade == "cafe" else purchase.cashier
        if meta.style == "table":
            rows.append(spread_row(label, value, columns=columns))
        else:
            rows.append(text_row(f"{label}: {value}", columns=columns))
    return rows


def date_text(layout: Layout, purchase: Purchase) -> str:
    """The purchase's date as the layout prints it."""
    return purchase.moment.strftime(layout.market.date_formats[layout.meta.date_format])


def _halves(left: str, right: str, *, columns: int) -> TextRow:
    middle = max(columns / 2, len(left))
    cells = [Cell(text=left, start=0, stop=middle)]
    if right:
        cells.append(Cell(text=right, start=middle + 1, stop=columns, alignment="right"))
    return TextRow(cells=tuple(cells))


def _footer(layout: Layout) -> list[Row]:
    footer, words, columns = layout.footer, layout.market.words, layout.paper.columns
    rows: list[Row] = [Gap(lines=0.8)]
    if footer.note:
        note = words.notes[footer.thanks % len(words.notes)]
        rows += wrapped_rows(note, columns=columns, alignment=footer.alignment)
    thanks = words.thanks[footer.thanks % len(words.thanks)]
    rows += wrapped_rows(thanks, columns=columns, alignment=footer.alignment, bold=True)
    return rows


def _barcode(layout: Layout, purchase: Purchase) -> list[Row]:
    kind = layout.footer.barcode
    if kind == "none":
        return []
    digits = f"{purchase.number * 7919 + layout.index:012d}"[-12:]
    if kind == "qr":
        payload = f"{purchase.moment:%Y%m%dT%H%M}&s={purchase.total_cents / 100:.2f}&n={digits}"
        return [Gap(lines=0.8), Graphic(kind=kind, payload=payload, lines=6.5)]
    caption = text_row(printed_code(kind, digits), columns=layout.paper.columns, alignment="center")
    return [Gap(lines=0.8), Graphic(kind=kind, payload=digits, lines=3), Gap(lines=0.3), caption]
