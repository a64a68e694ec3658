"""`outlay prices compare`: what every source says, and which price a plan takes."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from outlay.offers.catalog import snapshot_offers
from outlay.prices.price_store import PriceStore
from outlay.prices.sources import ProviderPrices, Validators

LAMBDA = [offer for offer in snapshot_offers() if offer.provider == "lambda"]
H100S = [offer for offer in LAMBDA if offer.gpu.startswith("H100")]


def says(source, as_of, times):
    offers = tuple(
        replace(
            offer,
            as_of=as_of,
            source=f"https://example.org/{source}",
            price_usd_per_hour=offer.price_usd_per_hour * times,
        )
        for offer in LAMBDA
    )
    return ProviderPrices(
        source=source,
        provider="lambda",
        as_of=as_of,
        fetched_at="2026-11-15T20:15:00Z",
        offers=offers,
    )


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))


@pytest.fixture
def two_sources():
    """Lambda by two sources, as a refresh keeps them: the newer a tenth dearer."""
    with PriceStore() as store:
        for prices in (says("skypilot", "2026-11-01", 1.0), says("gpuhunt", "2026-11-14", 1.1)):
            store.replace(prices, Validators())


def test_document_is_valid_and_says_who_says_what(outlay, two_sources):
    ended = outlay("prices", "compare", "H100", "--provider", "lambda", "--json")
    assert (ended.code, ended.err) == (0, "")
    document = ended.document
    jsonschema.validate(document, outlay("schema", "prices-compare").document)
    assert (document["schema"], document["gpu"]) == (1, "H100")
    assert len(document["machines"]) == len(H100S)
    for machine in document["machines"]:
        used, other, bundled = machine["prices"]
        assert [price["source"] for price in machine["prices"]] == [
            "gpuhunt",
            "skypilot",
            "bundled",
        ]
        assert [used["used"], other["used"], bundled["used"]] == [True, False, False]
        assert used["as_of"] == "2026-11-14"
        # 1 / 1.1 = 0.909
        assert other["difference_fraction"] == pytest.approx(-0.0909, abs=1e-4)
        assert machine["doubts"] == ["sources disagree"]
        assert "5 %" in machine["doubt_reasons"]["sources disagree"]
        assert machine["why"] == "the newest"


def test_table_has_a_row_for_each_source(outlay, two_sources):
    shown = outlay("prices", "compare", "H100", "--gpus", 8, "--provider", "lambda").out
    lines = shown.splitlines()
    (first,) = [place for place, line in enumerate(lines) if "8x H100 SXM" in line]
    # $31.92 in the snapshot; a tenth more is $35.11
    assert "gpuhunt" in lines[first]
    assert "$35.11" in lines[first]
    assert "used: the newest; sources" in lines[first]
    rows = " ".join(lines[first : first + 4])
    assert "skypilot" in rows
    assert "$31.92" in rows
    assert "-9.1 %" in rows
    assert "bundled" in rows
    assert "Shown 1 of 1 machine that two or more sources list." in lines


def test_what_sources_disagree_about_is_said_wherever_offers_are(outlay, two_sources):
    arguments = ("offers", "--gpu", "H100:8", "--provider", "lambda", "--prices", "newest")
    (offer,) = outlay(*arguments, "--json").document["offers"]
    assert "sources disagree" in offer["doubts"]
    reason = offer["doubt_reasons"]["sources disagree"]
    assert reason.endswith(": skypilot $31.92 on 2026-11-01")
    assert offer["other_prices"][0]["price_usd_per_hour"] == pytest.approx(31.92)
    assert offer["cautions"] == []
    shown = outlay(*arguments).out
    assert "sources disagree" in " ".join(shown.split())
    assert "sources disagree: Another source's price differs by more than 5 %" in shown


def test_without_a_refresh_there_is_one_source(outlay):
    ended = outlay("prices", "compare", "H100")
    assert ended.code == 0
    assert "Shown 0 of 0 machines" in ended.out
    assert "`outlay prices refresh` brings further sources." in ended.out
    document = outlay("prices", "compare", "H100", "--json").document
    assert document["machines"] == []
    assert document["only_one"]["bundled"] > 100


def test_fewer_machines(outlay, two_sources):
    assert (
        len(outlay("prices", "compare", "H100", "--max-machines", 2, "--json").document["machines"])
        == 2
    )
    assert "Shown 2 of" in outlay("prices", "compare", "H100", "--max-machines", 2).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("H1000000",), "No GPU is known as 'H1000000'"),
        (("H100", "--provider", "lamda"), "No provider is known as 'lamda'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(outlay, arguments, said):
    ended = outlay("prices", "compare", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""
