"""`outlay offers`: the filters people know, the order, the documented keys."""

from __future__ import annotations

from numbers import Real

import jsonschema
import pytest

from outlay.units import GIB

KEYS = {
    "provider": str,
    "instance": str,
    "gpu": str,
    "gpus": int,
    "region": str,
    "price_usd_per_hour": (Real, type(None)),
    "spot_usd_per_hour": (Real, type(None)),
    "as_of": str,
    "source": str,
}


@pytest.fixture
def listed(outlay):
    """The offers a search finds; there must be some."""

    def search(*arguments):
        ended = outlay("offers", *arguments, "--json")
        assert (ended.code, ended.err) == (0, "")
        offers = ended.document["offers"]
        assert offers
        return offers

    return search


def test_document_has_the_contract_s_keys(outlay, listed):
    for offer in listed():
        for key, kind in KEYS.items():
            assert isinstance(offer[key], kind), key
        for price in (offer["price_usd_per_hour"], offer["spot_usd_per_hour"]):
            assert price is None or price > 0


def test_document_validates_against_its_schema(outlay):
    document = outlay("offers", "--gpu", "A100", "--json").document
    assert document["schema"] == 1
    jsonschema.validate(document, outlay("schema", "offers").document)


def test_gpu_with_a_count(listed):
    offers = listed("--gpu", "A100-80GB:8")
    assert {offer["gpus"] for offer in offers} == {8}
    assert all(offer["gpu"].startswith("A100 80GB") for offer in offers)


def test_gpu_with_a_range_of_counts(listed):
    assert {offer["gpus"] for offer in listed("--gpu", "H100:2..4")} <= {2, 3, 4}
    assert {offer["gpus"] for offer in listed("--gpu", "H100:8..8")} == {8}
    assert min(offer["gpus"] for offer in listed("--gpu", "H100:4..")) == 4


def test_range_of_memory(listed):
    for offer in listed("--gpu", "24GB..48GB"):
        memory = offer["gpu_memory_bytes"]
        # Cards are sold in GB and hold GiB: 24 GiB to 48 GiB.
        assert memory is None or 24 * GIB <= memory <= 48 * GIB


def test_open_range_of_memory(listed):
    big = [offer["gpu_memory_bytes"] for offer in listed("--gpu", "100GB..")]
    assert min(memory for memory in big if memory is not None) >= 100 * GIB
    small = [offer["gpu_memory_bytes"] for offer in listed("--gpu", "..16GB")]
    assert max(memory for memory in small if memory is not None) <= 16 * GIB


@pytest.mark.parametrize("arguments", [["--gpu", "T4,L4"], ["--gpu", "T4", "--gpu", "L4"]])
def test_several_gpus(listed, arguments):
    assert {offer["gpu"] for offer in listed(*arguments)} == {"T4", "L4"}


@pytest.mark.parametrize("spelling", ["rtx4090", "RTX 4090", "GeForce RTX 4090", "NVIDIA RTX-4090"])
def test_any_usual_spelling(listed, spelling):
    assert {offer["gpu"] for offer in listed("--gpu", spelling)} == {"RTX 4090"}


@pytest.mark.parametrize("spelling", ["lambda", "Lambda", "LAMBDA"])
def test_provider_in_any_case(listed, spelling):
    assert {offer["provider"] for offer in listed("--provider", spelling)} == {"lambda"}


def test_several_providers(listed):
    offers = listed("--provider", "aws", "--provider", "gcp")
    assert {offer["provider"] for offer in offers} == {"aws", "gcp"}


def test_region_by_its_beginning(listed):
    offers = listed("--region", "us-", "--provider", "aws")
    assert all(offer["region"].startswith("us-") for offer in offers)
    assert len({offer["region"] for offer in offers}) > 1
    fewer = listed("--region", "us-east-1", "--provider", "aws")
    assert len(fewer) < len(offers)
    assert all(offer["region"].startswith("us-east-1") for offer in fewer)


def test_spot_only_comes_by_spot_price(listed):
    prices = [offer["spot_usd_per_hour"] for offer in listed("--spot")]
    assert None not in prices
    assert prices == sorted(prices)


def test_on_demand_only_comes_by_price(listed):
    prices = [offer["price_usd_per_hour"] for offer in listed("--on-demand")]
    assert None not in prices
    assert prices == sorted(prices)


def test_cheapest_first_and_unknown_prices_last(listed):
    prices = [offer["price_usd_per_hour"] for offer in listed()]
    known = [price for price in prices if price is not None]
    assert prices == sorted(known) + [None] * (len(prices) - len(known))


def test_max_price_means_the_price_asked_for(listed):
    assert (
        max(one["price_usd_per_hour"] for one in listed("--on-demand", "--max-price", 0.5)) <= 0.5
    )
    assert max(one["spot_usd_per_hour"] for one in listed("--spot", "--max-price", 0.2)) <= 0.2
    for offer in listed("--max-price", 0.3):
        prices = (offer["price_usd_per_hour"], offer["spot_usd_per_hour"])
        assert min(price for price in prices if price is not None) <= 0.3


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("gpu", lambda offer: offer["gpu"]),
        ("provider", lambda offer: offer["provider"]),
        ("age", lambda offer: offer["as_of"]),
        ("memory", lambda offer: -(offer["gpu_memory_bytes"] or 0)),
    ],
)
def test_sort(listed, sort, key):
    keys = [key(offer) for offer in listed("--provider", "runpod", "--sort", sort)]
    assert keys == sorted(keys)


def test_sort_by_price_of_one_gpu(listed):
    offers = listed("--provider", "lambda", "--on-demand", "--sort", "gpu-price")
    per_gpu = [offer["price_usd_per_hour"] / offer["gpus"] for offer in offers]
    assert per_gpu == sorted(per_gpu)


def test_filters_add_up(listed):
    both = listed("--gpu", "A100", "--provider", "gcp")
    assert {offer["provider"] for offer in both} == {"gcp"}
    assert all(offer["gpu"].startswith("A100") for offer in both)
    assert len(both) < len(listed("--gpu", "A100"))


def test_max_offers_limits_json_and_table(outlay, listed):
    assert len(listed("--max-offers", 3)) == 3
    total = len(listed())
    shown = outlay("offers", "--max-offers", 3).out
    assert f"Shown 3 of {total} offers" in shown.splitlines()[-1]
    # A head, three rows, the line that counts; folded rows and what doubts mean are indented.
    assert len([line for line in shown.splitlines() if not line.startswith(" ")]) == 5


def test_table_shows_fifty_unless_asked(outlay):
    assert "Shown 50 of " in outlay("offers").out


def test_nothing_found_is_said(outlay):
    arguments = ("offers", "--gpu", "H100", "--on-demand", "--max-price", 0.0001)
    ended = outlay(*arguments)
    assert ended.code == 0
    assert ended.out.splitlines()[-1].startswith("Shown 0 of 0 offers")
    assert outlay(*arguments, "--json").document == {"schema": 1, "offers": []}


def test_real_program_prints_json_alone(program):
    ended = program("offers", "--gpu", "T4", "--json")
    assert ended.code == 0
    assert ended.err == ""
    assert {offer["gpu"] for offer in ended.document["offers"]} == {"T4"}
