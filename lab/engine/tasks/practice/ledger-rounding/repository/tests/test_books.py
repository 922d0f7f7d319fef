import unittest
from decimal import Decimal

from ledger import CreditNote, Invoice, Ledger, Line

FLOUR = Line("Flour, 25 kg", Decimal("18.40"), 3)


class BooksTest(unittest.TestCase):
    def setUp(self):
        self.books = Ledger()

    def test_an_invoice_moves_three_accounts(self):
        self.books.post(Invoice("1", "Baker & Co", [FLOUR], vat="reduced"))
        self.assertEqual(self.books.balance("receivables"), Decimal("59.06"))
        self.assertEqual(self.books.balance("revenue"), Decimal("-55.20"))
        self.assertEqual(self.books.balance("vat payable"), Decimal("-3.86"))

    def test_a_credit_note_takes_an_invoice_back(self):
        invoice = Invoice("1", "Baker & Co", [FLOUR], vat="reduced")
        self.books.post(invoice)
        self.books.post(CreditNote.for_invoice("2", invoice))
        self.assertEqual(self.books.balance("receivables"), Decimal("0.00"))

    def test_a_number_is_used_once(self):
        self.books.post(Invoice("1", "Baker & Co", [FLOUR]))
        with self.assertRaisesRegex(ValueError, "posted already"):
            self.books.post(Invoice("1", "Miller", [FLOUR]))

    def test_statement_lists_one_customer_only(self):
        self.books.post(Invoice("1", "Baker & Co", [FLOUR], vat="zero"))
        self.books.post(Invoice("2", "Miller", [FLOUR], vat="zero"))
        self.assertEqual(self.books.statement("Miller"), [("2", Decimal("55.20"))])


if __name__ == "__main__":
    unittest.main()
