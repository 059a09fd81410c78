"""Shop branches, and purchases that add up."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.receipts.goods import TRADES, goods, packs
from benchmarks.receipts.layout import Layout
from benchmarks.receipts.markets import Market
from benchmarks.receipts.randomness import chance, pick, stream

if TYPE_CHECKING:
    from faker import Faker

BRANCHES_PER_COMPANY = 4
_FIRST_DAY = datetime(2015, 1, 1)
_DAYS = 4000
_MALAY_BRANDS = (
    "Seri Wangi",
    "Maju Jaya",
    "Cahaya Murni",
    "Selera Kampung",
    "Bintang Emas",
    "Warisan Indah",
    "Sinar Harapan",
    "Mutiara Timur",
)


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A shop: one address of one company. `group` names it in the ground truth."""

    group: str
    company: str
    address: tuple[str, ...]
    phone: str
    tax_id: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """One line of goods; amounts in cents."""

    code: str
    name: str
    quantity: int
    unit_cents: int
    tax_letter: str

    @property
    def amount_cents(self) -> int:
        """Quantity times price."""
        return self.quantity * self.unit_cents


@dataclass(frozen=True, kw_only=True)
class TaxShare:
    """The part of a purchase under one tax rate; net + tax = gross."""

    letter: str
    percent: float
    net_cents: int
    tax_cents: int

    @property
    def gross_cents(self) -> int:
        """Price including tax."""
        return self.net_cents + self.tax_cents


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """Everything printed on a receipt that another visit to the shop would change."""

    items: tuple[Item, ...]
    taxes: tuple[TaxShare, ...]
    moment: datetime
    number: int
    till: int
    cashier: str
    by_card: bool
    paid_cents: int

    @property
    def items_cents(self) -> int:
        """The sum of the items' amounts."""
        return sum(item.amount_cents for item in self.items)

    @property
    def total_cents(self) -> int:
        """Sum to pay, including tax."""
        return sum(tax.gross_cents for tax in self.taxes)


@lru_cache(maxsize=4096)
def draw_branch(seed: int, layout: Layout, index: int) -> Branch:
    """Branch number `index` among the shops that use a layout."""
    market = layout.market
    company_index = index // BRANCHES_PER_COMPANY
    company = _company(stream(seed, "company", layout.index, company_index), layout)
    rng = stream(seed, "branch", layout.index, index)
    faker = _faker(market.locale)
    faker.seed_instance(int(rng.integers(2**31)))
    street = [line.strip() for line in faker.street_address().splitlines()]
    if market.locale == "it_IT":
        # Faker's Italian cities are in a set's order, which differs from process to process.
        place = str(faker.postcode_city_province()).replace(",", "")
    else:
        place = f"{faker.postcode()} {faker.city()}"
    tax_id = "".join(str(digit) for digit in rng.integers(0, 10, size=9))
    return Branch(
        group=f"shop-{layout.index:04d}-{index:03d}",
        company=company,
        address=(*street, place),
        phone=faker.phone_number(),
        tax_id=market.locale[-2:] + tax_id if market.currency == "EUR" else tax_id,
    )


def draw_purchase(rng: np.random.Generator, layout: Layout) -> Purchase:
    """A purchase in a shop that uses a layout."""
    items = _items(rng, layout)
    taxes = _taxes(items, layout.market)
    total = sum(tax.gross_cents for tax in taxes)
    by_card = chance(rng, 0.55)
    note = pick(rng, (500, 1000, 2000, 5000))
    faker = _faker(layout.market.locale)
    faker.seed_instance(int(rng.integers(2**31)))
    moment = _FIRST_DAY + timedelta(
        days=int(rng.integers(_DAYS)), seconds=int(rng.integers(7 * 3600, 22 * 3600))
    )
    return Purchase(
        items=items,
        taxes=taxes,
        moment=moment,
        number=int(rng.integers(1000, 10**7)),
        till=int(rng.integers(1, 13)),
        cashier=faker.first_name(),
        by_card=by_card,
        paid_cents=total if by_card else -(-total // note) * note,
    )


def _items(rng: np.random.Generator, layout: Layout) -> tuple[Item, ...]:
    market, trade = layout.market, layout.trade
    stock = goods(market.language, trade)
    median, most = {"grocery": (6, 28), "cafe": (3.5, 10), "household": (4, 16)}[trade]
    count = int(np.clip(rng.lognormal(np.log(median), 0.6), 1, most))
    step = 5 if market.currency == "CHF" else 10
    items = []
    for choice in rng.integers(len(stock), size=count):
        name, cents = stock[int(choice)]
        price = max(step, round(cents * market.price_scale * rng.lognormal(0, 0.2) / step) * step)
        letters = [letter for letter, _ in market.tax_percents]
        items.append(
            Item(
                code=str(int(rng.integers(10**5, 10**6))),
                name=f"{name} {pick(rng, packs(trade))}".strip(),
                quantity=1 if chance(rng, 0.7) else int(rng.integers(2, 5)),
                unit_cents=price - (1 if step == 10 and trade != "cafe" else 0),
                tax_letter=letters[0] if chance(rng, 0.7) else letters[-1],
            )
        )
    return tuple(items)


def _taxes(items: tuple[Item, ...], market: Market) -> tuple[TaxShare, ...]:
    shares = []
    for letter, percent in market.tax_percents:
        amount = sum(item.amount_cents for item in items if item.tax_letter == letter)
        if not amount:
            continue
        if market.tax_included:
            tax = round(amount * percent / (100 + percent))
            net = amount - tax
        else:
            tax, net = round(amount * percent / 100), amount
        shares.append(TaxShare(letter=letter, percent=percent, net_cents=net, tax_cents=tax))
    return tuple(shares)


def _company(rng: np.random.Generator, layout: Layout) -> str:
    market = layout.market
    faker = _faker(market.locale)
    faker.seed_instance(int(rng.integers(2**31)))
    trade = market.words.trades[2 * TRADES.index(layout.trade) + int(rng.integers(2))]
    brand = pick(rng, _MALAY_BRANDS) if market.locale == "en_MS" else str(faker.last_name())
    name = f"{trade} {brand}" if market.language not in ("en", "tr", "nl") else f"{brand} {trade}"
    return f"{name} {pick(rng, market.legal_forms)}".strip()


@cache
def _faker(locale: str) -> "Faker":
    from faker import Faker  # slow to import, and looks for its locales on disk

    return Faker(locale)
