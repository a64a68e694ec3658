"""`outlay prices import`: a list is taken, listed, removed, and other commands work with it."""

from __future__ import annotations

import pytest

OFFERS = "provider,gpu,price_per_hour,as_of\nacme,H100 SXM,1.5,2026-11-01\nacme,Foo,1,2026-11-01\n"


@pytest.fixture
def imported(outlay, tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))

    def take(text, name="mine.csv", *options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return outlay("prices", "import", path, *options)

    return take


def test_what_was_taken_is_said(imported, outlay):
    ended = imported(OFFERS, "quotes.csv", "--as", "acme")
    assert ended.code == 0
    assert "Kept acme: 2 offers, the newest of 2026-11-01." in ended.out
    assert "GPUs: H100 SXM." in ended.out
    assert "Not known to outlay, so kept and in no plan: Foo." in ended.out
    assert "acme" in outlay("prices", "import", "--list").out
    assert "Removed acme; 0 lists kept." in outlay("prices", "import", "--remove", "acme").out
    assert "No list of your own is kept" in outlay("prices", "import", "--list").out


def test_the_document(imported, outlay):
    import jsonschema

    document = imported(OFFERS, "mine.csv", "--json").document
    jsonschema.validate(document, outlay("schema", "prices-import").document)
    taken = document["imported"]
    assert (taken["kind"], taken["rows"], taken["unknown"]) == ("offers", 2, ["Foo"])
    assert document["lists"] == [taken]
    assert outlay("prices", "import", "--list", "--json").document["imported"] is None


def test_discounts_and_parts_are_counted(imported):
    text = '[[offer]]\nprovider = "a"\ngpu = "L4"\nprice_per_hour = 1\n'
    both = text + '[[discount]]\nprovider = "aws"\nfraction = 0.1\n'
    assert "Kept both: 1 offer and 1 discount," in imported(both, "both.toml").out
    ended = imported("part,price\nRyzen 5 7600X,199\nWhatsit 9,5\n", "parts.csv")
    assert "Kept parts: 2 part prices, the newest of 2026-11-15." in ended.out
    assert "in no plan: Whatsit 9." in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--list", "--remove", "x"), "Give one of FILE"),
        (("--as", "x", "--list"), "--as NAME goes with FILE"),
        (("--remove", "nobody"), "No price list is known as 'nobody'"),
        (("there-is-none.csv",), "There is no price list there-is-none.csv"),
        ((".",), "It is a directory"),
    ],
)
def test_bad_input_ends_with_2_and_a_message(imported, outlay, arguments, said):
    ended = outlay("prices", "import", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_bad_list_names_the_file_and_the_line(imported):
    ended = imported(OFFERS.replace("1.5", "x"))
    assert ended.code == 2
    assert "mine.csv, line 2: price_per_hour: 'x' is no number." in ended.err


def test_build_works_with_imported_prices(imported, outlay, monkeypatch):
    monkeypatch.setenv("OUTLAY_PRICES", "newest")
    imported("card,condition,price,as_of\nRTX 3090,used,700,2026-11-10\n", "cards.csv")
    imported("part,price,as_of\nRyzen 5 7600X,1,2024-01-01\n", "old.csv")
    parts = outlay("build", "--gpu", "RTX 3090", "--used", "--json").document["parts"]
    card = parts[0]
    assert (card["price_usd"], card["price_as_of"]) == (700, "2026-11-10")
    assert card["price_source"] == "your price list cards"
    # the table's price of 2025 is newer than the imported one of 2024
    assert all(part["price_usd"] != 1 for part in parts)
