"""Markets: language, money, dates and taxes of a country."""

from dataclasses import dataclass
from unicodedata import normalize

from benchmarks.receipts.languages import WORDS, Words


@dataclass(frozen=True, kw_only=True)
class Market:
    """Properties that receipts of one country have in common.

    Attributes:
      locale: Faker's name of the country and language.
      date_formats: strftime formats; a layout chooses one.
      tax_percents: rates by the letter printed beside an item; the first is the usual one.
      tax_included: whether prices contain the tax, or it is added below the items.
      price_scale: prices here relative to euro prices.
      legal_forms: what may follow a company's name.
    """

    language: str
    locale: str
    currency: str
    symbol: str
    symbol_first: bool
    decimal: str
    thousands: str
    date_formats: tuple[str, ...]
    tax_percents: tuple[tuple[str, float], ...]
    tax_included: bool = True
    tax_name: str = ""
    price_scale: float = 1.0
    legal_forms: tuple[str, ...] = ("",)

    @property
    def words(self) -> Words:
        """The labels in this market's language."""
        return WORDS[self.language]

    def amount(self, cents: int, *, symbol: bool = False) -> str:
        """An amount as printed here, such as "1.234,50" or "£3.20"."""
        whole, fraction = divmod(abs(cents), 100)
        digits = f"{whole:,}".replace(",", self.thousands) + f"{self.decimal}{fraction:02d}"
        sign = "-" if cents < 0 else ""
        if not symbol:
            return sign + digits
        if self.symbol_first:
            return f"{sign}{self.symbol}{digits}"
        return f"{sign}{digits} {self.symbol}"

    def upper(self, text: str) -> str:
        """A text in capitals, as they are written here."""
        if self.language == "tr":
            return text.replace("i", "İ").upper()
        if self.language == "el":  # Greek capitals carry no accent
            return normalize("NFC", normalize("NFD", text).replace("\u0301", "")).upper()
        return text.upper()

    def percent(self, value: float) -> str:
        """A tax rate as printed here, such as "5,5%"."""
        return f"{value:g}%".replace(".", self.decimal)


_SLASHED = ("%d/%m/%Y", "%d/%m/%y", "%d-%m-%Y")
_DOTTED = ("%d.%m.%Y", "%d.%m.%y", "%Y-%m-%d")


def _euro(
    language: str,
    locale: str,
    *,
    rates: tuple[float, float],
    dates: tuple[str, ...],
    legal_forms: tuple[str, ...],
    thousands: str = ".",
) -> Market:
    return Market(
        language=language,
        locale=locale,
        currency="EUR",
        symbol="€",
        symbol_first=False,
        decimal=",",
        thousands=thousands,
        date_formats=dates,
        tax_percents=(("A", rates[0]), ("B", rates[1])),
        legal_forms=legal_forms,
    )


# fmt: off
MARKETS: tuple[Market, ...] = (
    Market(language="en", locale="en_GB", currency="GBP", symbol="£", symbol_first=True,
           decimal=".", thousands=",", date_formats=("%d/%m/%Y", "%d %b %Y", "%d-%b-%y"),
           tax_percents=(("A", 20), ("Z", 0)), price_scale=0.9, legal_forms=("Ltd", "", "PLC")),
    Market(language="en", locale="en_US", currency="USD", symbol="$", symbol_first=True,
           decimal=".", thousands=",", date_formats=("%m/%d/%Y", "%m/%d/%y", "%b %d, %Y"),
           tax_percents=(("T", 8.25),), tax_included=False, tax_name="Sales Tax",
           price_scale=1.15, legal_forms=("Inc", "", "LLC")),
    Market(language="en", locale="en_MS", currency="MYR", symbol="RM", symbol_first=True,
           decimal=".", thousands=",", date_formats=("%d/%m/%Y", "%d-%m-%Y", "%d %b %Y"),
           tax_percents=(("SR", 6),), tax_name="GST", price_scale=4.0,
           legal_forms=("SDN BHD", "ENTERPRISE", "TRADING")),
    Market(language="ms", locale="en_MS", currency="MYR", symbol="RM", symbol_first=True,
           decimal=".", thousands=",", date_formats=("%d/%m/%Y", "%d-%m-%y", "%d.%m.%Y"),
           tax_percents=(("S", 6),), price_scale=4.0, legal_forms=("SDN BHD", "ENTERPRISE")),
    _euro("de", "de_DE", rates=(19, 7), dates=_DOTTED, legal_forms=("GmbH", "", "e.K.", "KG")),
    Market(language="de", locale="de_CH", currency="CHF", symbol="CHF", symbol_first=False,
           decimal=".", thousands="'", date_formats=_DOTTED, price_scale=1.4,
           tax_percents=(("1", 8.1), ("2", 2.6)), legal_forms=("AG", "GmbH")),
    _euro("fr", "fr_FR", rates=(5.5, 20), dates=_SLASHED, thousands=" ",
          legal_forms=("SARL", "", "SAS")),
    _euro("es", "es_ES", rates=(10, 21), dates=_SLASHED, legal_forms=("S.L.", "", "S.A.")),
    _euro("it", "it_IT", rates=(10, 22), dates=_SLASHED, legal_forms=("S.r.l.", "", "& C. snc")),
    _euro("nl", "nl_NL", rates=(9, 21), dates=("%d-%m-%Y", "%d-%m-%y", "%d/%m/%Y"),
          legal_forms=("B.V.", "", "V.O.F.")),
    Market(language="pl", locale="pl_PL", currency="PLN", symbol="zł", symbol_first=False,
           decimal=",", thousands=" ", date_formats=("%Y-%m-%d", "%d.%m.%Y", "%d-%m-%Y"),
           tax_percents=(("A", 23), ("B", 8)), price_scale=4.0,
           legal_forms=("Sp. z o.o.", "", "S.A.")),
    _euro("pt", "pt_PT", rates=(23, 6), dates=("%d/%m/%Y", "%Y-%m-%d", "%d-%m-%Y"),
          thousands=" ", legal_forms=("Lda.", "", "S.A.")),
    Market(language="pt", locale="pt_BR", currency="BRL", symbol="R$", symbol_first=True,
           decimal=",", thousands=".", date_formats=_SLASHED, price_scale=4.5,
           tax_percents=(("F", 18),), tax_name="ICMS", legal_forms=("Ltda", "S/A", "ME")),
    Market(language="tr", locale="tr_TR", currency="TRY", symbol="TL", symbol_first=False,
           decimal=",", thousands=".", date_formats=("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y"),
           tax_percents=(("A", 10), ("B", 20)), price_scale=30.0,
           legal_forms=("A.Ş.", "Ltd. Şti.", "")),
    _euro("el", "el_GR", rates=(24, 13), dates=_SLASHED, legal_forms=("Α.Ε.", "", "Ο.Ε.")),
    Market(language="ru", locale="ru_RU", currency="RUB", symbol="руб", symbol_first=False,
           decimal=".", thousands=" ", date_formats=("%d.%m.%Y", "%d.%m.%y", "%Y-%m-%d"),
           tax_percents=(("А", 20), ("Б", 10)), price_scale=70.0, legal_forms=("",)),
)
# fmt: on
