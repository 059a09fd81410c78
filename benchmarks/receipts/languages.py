"""The words printed on a receipt, by language."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Words:
    """Labels of one language; a tuple holds alternatives that a layout chooses from.

    `trades` names kinds of shops: two for each of `goods.TRADES`, in that order.
    """

    receipt: tuple[str, ...]
    date: str
    time: str
    number: tuple[str, ...]
    cashier: str
    table: str
    till: str
    description: str
    quantity: str
    price: str
    amount: str
    subtotal: str
    tax: str
    net: str
    gross: str
    total: tuple[str, ...]
    cash: str
    card: str
    change: str
    item_count: str
    tax_id: str
    phone: str
    thanks: tuple[str, ...]
    notes: tuple[str, ...]
    trades: tuple[str, ...]


# fmt: off
WORDS: dict[str, Words] = {
    "en": Words(
        receipt=("RECEIPT", "TAX INVOICE", "SALES RECEIPT"), date="Date", time="Time",
        number=("Receipt No", "Trans", "Invoice"), cashier="Cashier", table="Table", till="Till",
        description="Item", quantity="Qty", price="Price", amount="Amount", subtotal="Subtotal",
        tax="VAT", net="Net", gross="Gross", total=("TOTAL", "BALANCE DUE", "AMOUNT DUE"),
        cash="Cash", card="Card", change="Change", item_count="Items sold", tax_id="VAT No",
        phone="Tel", thanks=("Thank you for your custom", "THANK YOU!", "See you again soon"),
        notes=("Please keep your receipt", "Refunds within 28 days", "Customer copy"),
        trades=("Market", "Foods", "Café", "Kitchen", "Hardware", "Home & Garden"),
    ),
    "de": Words(
        receipt=("KASSENBON", "RECHNUNG", "QUITTUNG"), date="Datum", time="Uhrzeit",
        number=("Bon-Nr.", "Beleg-Nr.", "Rechnung"), cashier="Es bediente Sie", table="Tisch",
        till="Kasse", description="Artikel", quantity="Menge", price="Preis", amount="Betrag",
        subtotal="Zwischensumme", tax="MwSt", net="Netto", gross="Brutto",
        total=("SUMME", "GESAMT", "ZU ZAHLEN"), cash="Bar", card="Kartenzahlung",
        change="Rückgeld", item_count="Anzahl Artikel", tax_id="USt-IdNr.", phone="Tel.",
        thanks=("Vielen Dank für Ihren Einkauf", "Auf Wiedersehen!", "Danke und bis bald"),
        notes=("Umtausch nur mit Kassenbon", "Kundenbeleg", "Bitte Beleg aufbewahren"),
        trades=("Frischemarkt", "Feinkost", "Gasthaus", "Café", "Baumarkt", "Haushaltswaren"),
    ),
    "fr": Words(
        receipt=("TICKET DE CAISSE", "FACTURE", "REÇU"), date="Date", time="Heure",
        number=("Ticket n°", "Facture n°", "Réf."), cashier="Servi par", table="Table",
        till="Caisse", description="Désignation", quantity="Qté", price="P.U.", amount="Montant",
        subtotal="Sous-total", tax="TVA", net="HT", gross="TTC",
        total=("TOTAL", "TOTAL TTC", "NET À PAYER"), cash="Espèces", card="Carte bancaire",
        change="Rendu", item_count="Nombre d'articles", tax_id="TVA intra.", phone="Tél.",
        thanks=("Merci de votre visite", "À bientôt !", "Merci et bonne journée"),
        notes=("Ticket à conserver", "Échange sous 15 jours", "Prix nets, service compris"),
        trades=("Épicerie", "Marché", "Bistrot", "Brasserie", "Quincaillerie", "Bricolage"),
    ),
    "es": Words(
        receipt=("FACTURA SIMPLIFICADA", "TICKET", "RECIBO"), date="Fecha", time="Hora",
        number=("Nº ticket", "Factura", "Nº op."), cashier="Le atendió", table="Mesa",
        till="Caja", description="Descripción", quantity="Cant", price="Precio",
        amount="Importe", subtotal="Subtotal", tax="IVA", net="Base", gross="Total",
        total=("TOTAL", "TOTAL A PAGAR", "IMPORTE TOTAL"), cash="Efectivo", card="Tarjeta",
        change="Cambio", item_count="Artículos", tax_id="CIF", phone="Tfno.",
        thanks=("Gracias por su visita", "¡Hasta pronto!", "Gracias por su compra"),
        notes=("IVA incluido", "Conserve su ticket", "Cambios en 30 días con ticket"),
        trades=("Alimentación", "Mercado", "Bar", "Restaurante", "Ferretería", "Bazar"),
    ),
    "it": Words(
        receipt=("DOCUMENTO COMMERCIALE", "SCONTRINO", "RICEVUTA"), date="Data", time="Ora",
        number=("Doc. n.", "Scontrino", "Ricevuta n."), cashier="Operatore", table="Tavolo",
        till="Cassa", description="Descrizione", quantity="Q.tà", price="Prezzo",
        amount="Importo", subtotal="Subtotale", tax="IVA", net="Imponibile", gross="Totale",
        total=("TOTALE COMPLESSIVO", "TOTALE EURO", "TOTALE"), cash="Contanti",
        card="Carta", change="Resto", item_count="Pezzi", tax_id="P.IVA", phone="Tel.",
        thanks=("Grazie e arrivederci", "Grazie per la visita", "Buona giornata!"),
        notes=("di cui IVA inclusa", "Conservare lo scontrino", "Chiuso il lunedì"),
        trades=("Alimentari", "Emporio", "Trattoria", "Bar", "Ferramenta", "Casalinghi"),
    ),
    "nl": Words(
        receipt=("KASSABON", "BON", "FACTUUR"), date="Datum", time="Tijd",
        number=("Bonnr.", "Trans.", "Factuur"), cashier="U bent geholpen door", table="Tafel",
        till="Kassa", description="Omschrijving", quantity="Aantal", price="Prijs",
        amount="Bedrag", subtotal="Subtotaal", tax="BTW", net="Excl.", gross="Incl.",
        total=("TOTAAL", "TE BETALEN", "TOTAALBEDRAG"), cash="Contant", card="Pinnen",
        change="Wisselgeld", item_count="Aantal artikelen", tax_id="BTW-nr.", phone="Tel.",
        thanks=("Bedankt en tot ziens", "Fijne dag verder!", "Bedankt voor uw bezoek"),
        notes=("Ruilen binnen 14 dagen met bon", "Bewaar deze bon", "Alle dagen geopend"),
        trades=("Markt", "Kruidenier", "Eetcafé", "Brasserie", "Bouwmarkt", "Huishoud"),
    ),
    "pl": Words(
        receipt=("PARAGON FISKALNY", "PARAGON", "RACHUNEK"), date="Data", time="Godz.",
        number=("Nr par.", "Paragon nr", "Nr wydr."), cashier="Kasjer", table="Stolik",
        till="Kasa", description="Nazwa", quantity="Ilość", price="Cena", amount="Wartość",
        subtotal="Sprzedaż opodatkowana", tax="PTU", net="Netto", gross="Brutto",
        total=("SUMA PLN", "RAZEM", "DO ZAPŁATY"), cash="Gotówka", card="Karta",
        change="Reszta", item_count="Liczba pozycji", tax_id="NIP", phone="tel.",
        thanks=("Dziękujemy za zakupy", "Zapraszamy ponownie", "Miłego dnia!"),
        notes=("Zwrot towaru do 14 dni", "Niefiskalny wydruk", "Zachowaj paragon"),
        trades=("Delikatesy", "Spożywczy", "Bar", "Karczma", "Narzędzia", "Dom i Ogród"),
    ),
    "pt": Words(
        receipt=("FATURA SIMPLIFICADA", "CUPOM FISCAL", "RECIBO"), date="Data", time="Hora",
        number=("Fatura", "Talão nº", "Doc."), cashier="Operador", table="Mesa", till="Caixa",
        description="Descrição", quantity="Qtd", price="Preço", amount="Valor",
        subtotal="Subtotal", tax="IVA", net="Base", gross="Total",
        total=("TOTAL A PAGAR", "TOTAL", "VALOR TOTAL"), cash="Dinheiro", card="Cartão",
        change="Troco", item_count="Qtd. total de itens", tax_id="NIF", phone="Tel.",
        thanks=("Obrigado pela preferência", "Volte sempre!", "Obrigado pela visita"),
        notes=("Guarde o seu talão", "Trocas até 15 dias", "Processado por programa certificado"),
        trades=("Mercearia", "Supermercado", "Café", "Churrasqueira", "Ferragens", "Drogaria"),
    ),
    "tr": Words(
        receipt=("FİŞ", "BİLGİ FİŞİ", "FATURA"), date="Tarih", time="Saat",
        number=("Fiş No", "İşlem No", "Belge No"), cashier="Kasiyer", table="Masa",
        till="Kasa", description="Ürün", quantity="Adet", price="Fiyat", amount="Tutar",
        subtotal="Ara toplam", tax="KDV", net="Matrah", gross="Toplam",
        total=("TOPLAM", "GENEL TOPLAM", "ÖDENECEK TUTAR"), cash="Nakit", card="Kredi kartı",
        change="Para üstü", item_count="Ürün sayısı", tax_id="VKN", phone="Tel",
        thanks=("Teşekkür ederiz", "Yine bekleriz", "Bizi tercih ettiğiniz için teşekkürler"),
        notes=("Değişim 14 gün içinde yapılır", "Mali değeri yoktur", "Afiyet olsun"),
        trades=("Market", "Gıda", "Lokantası", "Kebap", "Hırdavat", "Yapı Market"),
    ),
    "el": Words(
        receipt=("ΑΠΟΔΕΙΞΗ ΛΙΑΝΙΚΗΣ", "ΝΟΜΙΜΗ ΑΠΟΔΕΙΞΗ", "ΑΠΟΔΕΙΞΗ"), date="Ημ/νία", time="Ώρα",
        number=("Αρ. απόδ.", "Α/Α", "Παραστ."), cashier="Ταμίας", table="Τραπέζι",
        till="Ταμείο", description="Περιγραφή", quantity="Ποσ.", price="Τιμή", amount="Αξία",
        subtotal="Μερικό σύνολο", tax="ΦΠΑ", net="Καθ. αξία", gross="Μικτή",
        total=("ΣΥΝΟΛΟ", "ΓΕΝΙΚΟ ΣΥΝΟΛΟ", "ΠΛΗΡΩΤΕΟ"), cash="Μετρητά", card="Κάρτα",
        change="Ρέστα", item_count="Είδη", tax_id="ΑΦΜ", phone="Τηλ.",
        thanks=("Ευχαριστούμε πολύ", "Καλή σας ημέρα", "Σας περιμένουμε ξανά"),
        notes=("Κρατήστε την απόδειξη", "Αλλαγές εντός 14 ημερών", "Καλή όρεξη"),
        trades=("Αγορά", "Παντοπωλείο", "Ταβέρνα", "Καφέ", "Είδη Σπιτιού", "Σιδηρικά"),
    ),
    "ru": Words(
        receipt=("КАССОВЫЙ ЧЕК", "ТОВАРНЫЙ ЧЕК", "ЧЕК"), date="Дата", time="Время",
        number=("Чек №", "Док. №", "Смена"), cashier="Кассир", table="Стол", till="Касса",
        description="Товар", quantity="Кол", price="Цена", amount="Сумма",
        subtotal="Подытог", tax="НДС", net="Без НДС", gross="С НДС",
        total=("ИТОГО", "ИТОГ", "К ОПЛАТЕ"), cash="Наличными", card="Картой",
        change="Сдача", item_count="Позиций", tax_id="ИНН", phone="тел.",
        thanks=("Спасибо за покупку!", "Ждём вас снова", "Приходите ещё"),
        notes=("Сохраняйте чек", "Приход", "Возврат в течение 14 дней"),
        trades=("Продукты", "Гастроном", "Кафе", "Столовая", "Хозтовары", "Всё для дома"),
    ),
    "ms": Words(
        receipt=("RESIT", "RESIT RASMI", "INVOIS CUKAI"), date="Tarikh", time="Masa",
        number=("No. Resit", "No. Invois", "No. Bil"), cashier="Juruwang", table="Meja",
        till="Kaunter", description="Butiran", quantity="Kuantiti", price="Harga",
        amount="Jumlah", subtotal="Jumlah kecil", tax="SST", net="Asal", gross="Kasar",
        total=("JUMLAH", "JUMLAH BESAR", "JUMLAH PERLU DIBAYAR"), cash="Tunai", card="Kad",
        change="Baki", item_count="Bil. barang", tax_id="No. GST", phone="Tel",
        thanks=("Terima kasih, sila datang lagi", "TERIMA KASIH", "Jumpa lagi"),
        notes=("Barang dijual tidak boleh ditukar", "Sila simpan resit ini", "Salinan pelanggan"),
        trades=("Pasar Mini", "Kedai Runcit", "Restoran", "Kopitiam", "Perkakas", "Hardware"),
    ),
}
# fmt: on
