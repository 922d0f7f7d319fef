import unittest
from decimal import Decimal

from ledger.amounts import to_cents, vat_of
from ledger.documents import Line


class RoundingTest(unittest.TestCase):
    def test_less_than_half_a_cent_goes_down(self):
        self.assertEqual(to_cents(Decimal("2.344")), Decimal("2.34"))

    def test_more_than_half_a_cent_goes_up(self):
        self.assertEqual(to_cents(Decimal("2.3451")), Decimal("2.35"))

    def test_negative_amounts_round_to_the_nearest_cent(self):
        self.assertEqual(to_cents(Decimal("-2.344")), Decimal("-2.34"))
        self.assertEqual(to_cents(Decimal("-2.346")), Decimal("-2.35"))

    def test_half_a_cent_goes_up(self):
        self.assertEqual(to_cents(Decimal("0.135")), Decimal("0.14"))

    def test_floats_are_refused(self):
        with self.assertRaises(TypeError):
            to_cents(1.005)


class VatTest(unittest.TestCase):
    def test_standard_rate(self):
        self.assertEqual(vat_of(Decimal("100.00"), "standard"), Decimal("19.00"))

    def test_unknown_rate_names_the_known_ones(self):
        with self.assertRaisesRegex(ValueError, "reduced, standard, zero"):
            vat_of(Decimal("1.00"), "luxury")


class LineTest(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(Line("Yeast", Decimal("4.00"), 2, Decimal(25)).net(), Decimal("6.00"))


if __name__ == "__main__":
    unittest.main()
