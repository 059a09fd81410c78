"""Receipt layouts: their properties, and how they are drawn at random."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.receipts.goods import TRADES
from benchmarks.receipts.markets import MARKETS, Market
from benchmarks.receipts.randomness import chance, pick, pick_weighted, stream

T = TypeVar("T")
Color = tuple[int, int, int]

FAMILIES = (
    "mono",
    "mono",
    "mono",
    "sans",
    "serif",
    "roboto",
    "source_sans",
    "source_serif",
    "caladea",
)
ITEM_STYLES = ("one_line", "quantity_first", "two_lines", "coded", "table", "quantity_below")
LOGOS = ("none", "none", "none", "none", "none", "star", "leaf", "ring", "stripes", "shield", "cup")
BARCODES = ("none", "none", "ean13", "code128", "qr")
SEPARATORS = ("dashes", "equals", "stars", "dots", "rule", "double_rule", "blank")
TITLE_STYLES = ("plain", "plain", "inverse", "boxed", "starred")
META_STYLES = ("one_line", "pairs", "table", "labels")
TOTAL_STYLES = ("bold", "large", "inverse", "boxed", "wide")
TAX_BLOCKS = ("none", "line", "table", "by_rate")
_ALPHABET_BY_LANGUAGE = {"el": "greek", "ru": "cyrillic"}


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The roll: `columns` characters of body text wide; lengths in columns or lines."""

    columns: int
    margin: float
    line_pitch: float
    tone: Color


@dataclass(frozen=True, kw_only=True)
class Type:
    """Characters of a printer; `stretch` is a font's horizontal scale."""

    family: str
    bold: bool
    stretch: float
    ink: Color
    dot_matrix: bool


@dataclass(frozen=True, kw_only=True)
class Header:
    """Logo, company and address; title scales are multiples of body text."""

    alignment: str
    logo: str
    logo_lines: float
    title_width: int
    title_height: int
    title_style: str
    upper: bool
    show_tax_id: bool
    show_phone: bool
    receipt_title: str


@dataclass(frozen=True, kw_only=True)
class Meta:
    """Date, time, receipt number, cashier: where and how."""

    place: str
    style: str
    date_format: int
    show_time: bool
    show_cashier: bool


@dataclass(frozen=True, kw_only=True)
class Items:
    """The table of goods."""

    style: str
    heading: bool
    upper: bool
    tax_letters: bool
    symbol: bool


@dataclass(frozen=True, kw_only=True)
class Totals:
    """From the subtotal to the change."""

    style: str
    label: int
    symbol: bool
    subtotal: bool
    tax_block: str
    item_count: bool


@dataclass(frozen=True, kw_only=True)
class Footer:
    """The end of the receipt."""

    barcode: str
    barcode_first: bool
    thanks: int
    note: bool
    alignment: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One printed form, drawn from the corpus's seed."""

    index: int
    market: Market
    trade: str
    paper: Paper
    type: Type
    header: Header
    meta: Meta
    items: Items
    totals: Totals
    footer: Footer
    separator: str
    minor_separator: str

    @property
    def name(self) -> str:
        """The layout's name in the ground truth."""
        return f"layout-{self.index:04d}"


def deal(seed: int, purpose: str, index: int, options: Sequence[T]) -> T:
    """The option dealt to a layout: neighbors in rank get different ones.

    Every run of `len(options)` layouts gets each option once, in an order of its own, so that
    even a handful of layouts are clearly different.
    """
    hand, place = divmod(index, len(options))
    order = stream(seed, purpose, hand).permutation(len(options))
    return options[int(order[place])]


def draw_layout(seed: int, index: int) -> Layout:
    """Layout number `index` of a corpus; the lower, the more common."""
    # `rng` draws in the order of these lines: moving one changes every corpus.
    rng = stream(seed, "layout", index)
    market = deal(seed, "market", index, MARKETS)
    family = deal(seed, "family", index, FAMILIES)
    if family == "caladea" and market.language in _ALPHABET_BY_LANGUAGE:
        family = "serif"  # Caladea has Latin letters only
    item_style = deal(seed, "items", index, ITEM_STYLES)
    narrow = item_style in ("two_lines", "quantity_below") and chance(rng, 0.6)
    columns = int(rng.integers(24, 33)) if narrow else int(rng.integers(32, 49))
    alignment = pick_weighted(rng, {"center": 0.65, "left": 0.25, "right": 0.1})
    title_width = pick(rng, (1, 1, 2)) if columns > 28 else 1
    return Layout(
        index=index,
        market=market,
        trade=deal(seed, "trade", index, TRADES),
        paper=Paper(
            columns=columns,
            margin=float(rng.uniform(1.2, 4.0)),
            line_pitch=float(rng.uniform(1.06, 1.4)),
            tone=pick(rng, _PAPER_TONES),
        ),
        type=Type(
            family=family,
            bold=chance(rng, 0.2),
            stretch=float(rng.uniform(0.78, 1.08)),
            ink=pick(rng, _INKS),
            dot_matrix=family == "mono" and chance(rng, 0.3),
        ),
        header=Header(
            alignment=alignment,
            logo=deal(seed, "logo", index, LOGOS),
            logo_lines=float(rng.uniform(3.5, 7)),
            title_width=title_width,
            title_height=pick(rng, (1, 2, 2)),
            title_style=deal(seed, "title", index, TITLE_STYLES),
            upper=chance(rng, 0.6),
            show_tax_id=chance(rng, 0.7),
            show_phone=chance(rng, 0.7),
            receipt_title=pick(rng, ("none", "plain", "inverse", "large", "starred")),
        ),
        meta=Meta(
            place=pick_weighted(rng, {"top": 0.65, "bottom": 0.35}),
            style=deal(seed, "meta", index, META_STYLES),
            date_format=int(rng.integers(len(market.date_formats))),
            show_time=chance(rng, 0.85),
            show_cashier=chance(rng, 0.6),
        ),
        items=Items(
            style=item_style,
            heading=chance(rng, 0.5),
            upper=chance(rng, 0.5),
            tax_letters=chance(rng, 0.35),
            symbol=chance(rng, 0.15),
        ),
        totals=Totals(
            style=deal(seed, "total", index, TOTAL_STYLES),
            label=int(rng.integers(3)),
            symbol=chance(rng, 0.5),
            subtotal=chance(rng, 0.5),
            tax_block=deal(seed, "tax", index, TAX_BLOCKS),
            item_count=chance(rng, 0.3),
        ),
        footer=Footer(
            barcode=deal(seed, "barcode", index, BARCODES),
            barcode_first=chance(rng, 0.5),
            thanks=int(rng.integers(3)),
            note=chance(rng, 0.6),
            alignment="center" if alignment != "left" or chance(rng, 0.5) else "left",
        ),
        separator=deal(seed, "separator", index, SEPARATORS),
        minor_separator=pick(rng, ("dashes", "dots", "rule", "blank")),
    )


# Most rolls are nearly white; the last few are the tinted ones.
_PAPER_TONES: tuple[Color, ...] = (
    (250, 249, 246),
    (247, 245, 238),
    (252, 252, 252),
    (249, 248, 244),
    (251, 251, 249),
    (244, 240, 228),
    (240, 243, 247),
    (249, 239, 236),
    (250, 246, 224),
)
_INKS: tuple[Color, ...] = (
    (38, 38, 42),
    (30, 30, 30),
    (55, 52, 58),
    (40, 44, 78),
    (70, 48, 96),
    (24, 24, 26),
)
