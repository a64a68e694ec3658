"""`outlay check`: one screen of what is there, and never a key's value."""

from __future__ import annotations

import jsonschema
import pytest
from tests.prices.server import PriceServer, status

from outlay.errors import pip_command
from outlay.prices import status as price_status

SOURCES = {
    "skypilot": ("OUTLAY_SKYPILOT_CATALOG", "sky", "sky/v8/common/accelerators.csv"),
    "gpuhunt": ("OUTLAY_GPUHUNT_CATALOG", "hunt", "hunt/aws/version"),
    "vast": ("OUTLAY_VAST_API", "vast", "vast"),
    "spot-advisor": ("OUTLAY_SPOT_ADVISOR", "advisor.json", "advisor.json"),
    "rates": ("OUTLAY_RATES", "rates.zip", "rates.zip"),
}


@pytest.fixture
def server(monkeypatch):
    with PriceServer() as running:
        for variable, place, path in SOURCES.values():
            monkeypatch.setenv(variable, running.url(place))
            running.put(path, b"something")
        yield running


def test_which_sources_answer(outlay, server):
    server.misbehave("hunt/aws/version", status(503))
    server.remove("advisor.json")
    document = outlay("check", "--json").document
    jsonschema.validate(document, outlay("schema", "check").document)
    found = {one["source"]: one["answers"] for one in document["sources"]}
    assert found == {
        "skypilot": True, "gpuhunt": False, "vast": True, "spot-advisor": False, "rates": True,
    }  # fmt: skip
    reasons = {one["source"]: one["reason"] for one in document["sources"]}
    assert "503" in reasons["gpuhunt"]
    assert "404" in reasons["spot-advisor"]


def test_offline_asks_nobody(outlay, server):
    document = outlay("check", "--offline", "--json").document
    assert {one["answers"] for one in document["sources"]} == {None}
    assert server.requests == []


def test_how_old_each_providers_prices_are(outlay):
    document = outlay("check", "--offline", "--json").document
    ages = {one["provider"]: one for one in document["providers"]}
    # the tests' day is 2026-11-15, IBM's list is of 2023-01-15:
    # 2023-01-15 to 2026-01-15 are 1096 days, to 2026-11-15 another 304
    assert (ages["ibm"]["as_of"], ages["ibm"]["age_days"]) == ("2023-01-15", 1400)
    assert document["kept_bytes"] is None
    days = [one["as_of"] for one in document["providers"]]
    assert days == sorted(days)


def test_keys_are_named_and_never_shown(outlay, monkeypatch):
    monkeypatch.setenv("DIGITAL_OCEAN_API_KEY", "sesame-open")
    monkeypatch.delenv("JL_API_KEY", raising=False)
    ended = outlay("check", "--offline", "--json")
    keys = {one["provider"]: one["missing"] for one in ended.document["keys"]}
    assert keys["do"] is None
    assert keys["jarvislabs"] == "JL_API_KEY"
    assert keys["vultr"] is None  # asks for none
    assert "sesame-open" not in ended.out + outlay("check", "--offline").out


def test_what_is_missing_has_its_command(outlay, monkeypatch):
    monkeypatch.setattr(price_status, "_version", lambda _: None)
    text = outlay("check", "--offline").out
    assert pip_command("torch") in text
    assert "No prices were refreshed yet" in text
