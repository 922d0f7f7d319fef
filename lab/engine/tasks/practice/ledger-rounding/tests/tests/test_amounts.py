import unittest
from concurrent.futures import ThreadPoolExecutor
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


    def test_half_a_cent_goes_up_after_an_even_cent_too(self):
        self.assertEqual(to_cents(Decimal("0.125")), Decimal("0.13"))
        self.assertEqual(to_cents(Decimal("10.005")), Decimal("10.01"))

    def test_half_a_cent_goes_away_from_zero_when_negative(self):
        self.assertEqual(to_cents(Decimal("-0.125")), Decimal("-0.13"))
        self.assertEqual(to_cents(Decimal("-0.135")), Decimal("-0.14"))

    def test_rounding_is_the_same_in_every_thread(self):
        with ThreadPoolExecutor(max_workers=2) as pool:
            rounded = list(pool.map(to_cents, [Decimal("0.125"), Decimal("0.145"), Decimal("0.165")]))
        self.assertEqual(rounded, [Decimal("0.13"), Decimal("0.15"), Decimal("0.17")])


class VatTest(unittest.TestCase):
    def test_standard_rate(self):
        self.assertEqual(vat_of(Decimal("100.00"), "standard"), Decimal("19.00"))

    def test_half_a_cent_of_vat(self):
        self.assertEqual(vat_of(Decimal("1.50"), "reduced"), Decimal("0.11"))
        self.assertEqual(vat_of(Decimal("17.50"), "reduced"), Decimal("1.23"))

    def test_unknown_rate_names_the_known_ones(self):
        with self.assertRaisesRegex(ValueError, "reduced, standard, zero"):
            vat_of(Decimal("1.00"), "luxury")


class LineTest(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(Line("Yeast", Decimal("4.00"), 2, Decimal(25)).net(), Decimal("6.00"))

    def test_discount_that_ends_on_half_a_cent(self):
        self.assertEqual(Line("Salt", Decimal("0.25"), 1, Decimal(50)).net(), Decimal("0.13"))


if __name__ == "__main__":
    unittest.main()
