"""Names of goods and their usual prices, by language and trade.

Prices are in cents of a euro-like currency; a market scales them to its own.
"""

# Cents, in the order in which every language lists its goods below.
_GROCERY_CENTS = (119, 249, 289, 99, 189, 349, 159, 229, 399, 129, 499, 89, 279, 219, 179, 599)
_CAFE_CENTS = (230, 320, 290, 890, 1150, 1290, 690, 380, 450, 350, 980, 540)
_HOUSEHOLD_CENTS = (299, 449, 799, 199, 1299, 349, 259, 649, 999, 399, 1899, 549)

_CENTS = {"grocery": _GROCERY_CENTS, "cafe": _CAFE_CENTS, "household": _HOUSEHOLD_CENTS}

TRADES = tuple(_CENTS)

_GROCERY = {
    "en": "Whole milk|Sliced bread|Butter|Bananas|Tomatoes|Cheddar|Pasta|Orange juice|Chicken"
    "|Rice|Olive oil|Yoghurt|Apples|Eggs large|Crisps|Ground coffee",
    "de": "Vollmilch|Roggenbrot|Butter|Bananen|Tomaten|Gouda jung|Nudeln|Orangensaft|Hähnchen"
    "|Reis|Olivenöl|Joghurt|Äpfel|Eier Gr. M|Chips|Kaffee gemahlen",
    "fr": "Lait entier|Pain de mie|Beurre doux|Bananes|Tomates|Comté|Pâtes|Jus d'orange|Poulet"
    "|Riz long|Huile d'olive|Yaourt nature|Pommes|Œufs frais|Chips|Café moulu",
    "es": "Leche entera|Pan de molde|Mantequilla|Plátanos|Tomates|Queso curado|Macarrones"
    "|Zumo naranja|Pollo|Arroz|Aceite oliva|Yogur|Manzanas|Huevos|Patatas fritas|Café molido",
    "it": "Latte intero|Pane|Burro|Banane|Pomodori|Parmigiano|Spaghetti|Succo arancia|Pollo"
    "|Riso|Olio d'oliva|Yogurt|Mele|Uova fresche|Patatine|Caffè macinato",
    "nl": "Volle melk|Bruin brood|Roomboter|Bananen|Tomaten|Jonge kaas|Spaghetti|Sinaasappelsap"
    "|Kipfilet|Rijst|Olijfolie|Yoghurt|Appels|Eieren|Chips|Koffie gemalen",
    "pl": "Mleko 3,2%|Chleb żytni|Masło|Banany|Pomidory|Ser gouda|Makaron|Sok pomarańczowy"
    "|Kurczak|Ryż|Oliwa|Jogurt|Jabłka|Jaja M|Czipsy|Kawa mielona",
    "pt": "Leite gordo|Pão de forma|Manteiga|Bananas|Tomate|Queijo flamengo|Massa"
    "|Sumo de laranja|Frango|Arroz|Azeite|Iogurte|Maçãs|Ovos|Batatas fritas|Café moído",
    "tr": "Süt 1L|Ekmek|Tereyağı|Muz|Domates|Beyaz peynir|Makarna|Portakal suyu|Tavuk"
    "|Pirinç|Zeytinyağı|Yoğurt|Elma|Yumurta|Cips|Türk kahvesi",
    "el": "Γάλα πλήρες|Ψωμί|Βούτυρο|Μπανάνες|Ντομάτες|Φέτα|Μακαρόνια|Χυμός πορτοκάλι"
    "|Κοτόπουλο|Ρύζι|Ελαιόλαδο|Γιαούρτι|Μήλα|Αυγά|Πατατάκια|Καφές",
    "ru": "Молоко 3,2%|Хлеб ржаной|Масло слив.|Бананы|Томаты|Сыр российский|Макароны"
    "|Сок апельсин.|Курица|Рис|Масло оливк.|Кефир|Яблоки|Яйцо С1|Чипсы|Кофе молотый",
    "ms": "Susu segar|Roti putih|Mentega|Pisang|Tomato|Keju|Mee kuning|Jus oren|Ayam"
    "|Beras 5kg|Minyak masak|Yogurt|Epal|Telur gred A|Kerepek|Kopi O",
}

_CAFE = {
    "en": "Espresso|Cappuccino|Pot of tea|Soup of day|Fish & chips|Burger|Caesar salad"
    "|Lemonade|Beer pint|Carrot cake|Pizza|Glass of wine",
    "de": "Espresso|Cappuccino|Kännchen Tee|Tagessuppe|Schnitzel|Sauerbraten|Salat gemischt"
    "|Apfelschorle|Pils 0,5|Käsekuchen|Flammkuchen|Riesling 0,2",
    "fr": "Café|Café crème|Thé vert|Soupe du jour|Steak frites|Magret|Salade César"
    "|Limonade|Bière pression|Tarte aux pommes|Pizza reine|Verre de vin",
    "es": "Café solo|Café con leche|Té|Gazpacho|Paella|Entrecot|Ensalada mixta"
    "|Refresco|Caña|Tarta de queso|Calamares|Copa de vino",
    "it": "Caffè|Cappuccino|Tè|Minestrone|Lasagne|Tagliata|Insalata mista"
    "|Acqua 0,75|Birra media|Tiramisù|Pizza Margherita|Vino della casa",
    "nl": "Espresso|Cappuccino|Verse muntthee|Tomatensoep|Saté|Biefstuk|Salade geitenkaas"
    "|Frisdrank|Biertje|Appeltaart|Uitsmijter|Huiswijn",
    "pl": "Espresso|Cappuccino|Herbata|Żurek|Kotlet schabowy|Pierogi ruskie|Sałatka"
    "|Lemoniada|Piwo 0,5|Szarlotka|Placki|Wino 150ml",
    "pt": "Café|Galão|Chá|Caldo verde|Bacalhau à Brás|Bife à casa|Salada mista"
    "|Sumo|Imperial|Pastel de nata|Francesinha|Copo de vinho",
    "tr": "Türk kahvesi|Cappuccino|Çay|Mercimek çorbası|Adana kebap|İskender|Çoban salata"
    "|Ayran|Bira|Künefe|Lahmacun|Şarap kadeh",
    "el": "Ελληνικός|Φρέντο|Τσάι|Σούπα|Μουσακάς|Σουβλάκι μερίδα|Χωριάτικη"
    "|Λεμονάδα|Μπίρα|Γαλακτομπούρεκο|Παϊδάκια|Κρασί ποτήρι",
    "ru": "Эспрессо|Капучино|Чай зелёный|Борщ|Пельмени|Котлета по-киевски|Салат оливье"
    "|Морс|Пиво 0,5|Медовик|Шашлык|Вино бокал",
    "ms": "Kopi ais|Teh tarik|Milo panas|Sup ayam|Nasi lemak|Nasi goreng|Rojak"
    "|Sirap limau|Jus tembikai|Roti canai|Mee goreng|Satay 10",
}

_HOUSEHOLD = {
    "en": "Light bulb|Batteries AA|Screwdriver|Masking tape|Paint 1L|Sponges|Notebook"
    "|Extension lead|Hammer|Candle|Drill bits|Washing liquid",
    "de": "Glühlampe|Batterien AA|Schraubendreher|Kreppband|Farbe 1L|Schwämme|Notizbuch"
    "|Verlängerung|Hammer|Kerze|Bohrer-Set|Waschmittel",
    "fr": "Ampoule|Piles AA|Tournevis|Ruban adhésif|Peinture 1L|Éponges|Cahier"
    "|Rallonge|Marteau|Bougie|Forets|Lessive",
    "es": "Bombilla|Pilas AA|Destornillador|Cinta|Pintura 1L|Esponjas|Cuaderno"
    "|Alargador|Martillo|Vela|Juego brocas|Detergente",
    "it": "Lampadina|Pile AA|Cacciavite|Nastro carta|Vernice 1L|Spugne|Quaderno"
    "|Prolunga|Martello|Candela|Punte trapano|Detersivo",
    "nl": "Gloeilamp|Batterijen AA|Schroevendraaier|Tape|Verf 1L|Sponzen|Schrift"
    "|Verlengsnoer|Hamer|Kaars|Borenset|Wasmiddel",
    "pl": "Żarówka|Baterie AA|Śrubokręt|Taśma|Farba 1L|Gąbki|Zeszyt"
    "|Przedłużacz|Młotek|Świeca|Wiertła|Proszek do prania",
    "pt": "Lâmpada|Pilhas AA|Chave de fendas|Fita|Tinta 1L|Esponjas|Caderno"
    "|Extensão|Martelo|Vela|Brocas|Detergente",
    "tr": "Ampul|Pil AA|Tornavida|Bant|Boya 1L|Sünger|Defter"
    "|Uzatma kablosu|Çekiç|Mum|Matkap ucu|Deterjan",
    "el": "Λάμπα|Μπαταρίες AA|Κατσαβίδι|Ταινία|Χρώμα 1L|Σφουγγάρια|Τετράδιο"
    "|Μπαλαντέζα|Σφυρί|Κερί|Τρυπάνια|Απορρυπαντικό",
    "ru": "Лампочка|Батарейки АА|Отвёртка|Скотч|Краска 1л|Губки|Тетрадь"
    "|Удлинитель|Молоток|Свеча|Свёрла|Порошок",
    "ms": "Mentol|Bateri AA|Pemutar skru|Pita pelekat|Cat 1L|Span|Buku nota"
    "|Wayar sambungan|Tukul|Lilin|Mata gerudi|Sabun pencuci",
}

_NAMES = {"grocery": _GROCERY, "cafe": _CAFE, "household": _HOUSEHOLD}

_PACKS = {
    "grocery": ("", "", "500g", "1kg", "250g", "x2", "BIO", "1,5L"),
    "cafe": ("", "", "", "XL"),
    "household": ("", "", "2x", "10 mm", "PRO", "4x"),
}


def goods(language: str, trade: str) -> list[tuple[str, int]]:
    """Names and usual prices in cents of what a trade sells, in one language."""
    return list(zip(_NAMES[trade][language].split("|"), _CENTS[trade], strict=True))


def packs(trade: str) -> tuple[str, ...]:
    """Pack sizes and marks that may follow a name; "" is none."""
    return _PACKS[trade]
