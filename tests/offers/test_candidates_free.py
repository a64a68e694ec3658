"""Free notebooks: what they are, and that they are candidates only where asked for."""

from __future__ import annotations

import pytest
from tests.builders import an_offer

from outlay.offers import candidates as chosen_from
from outlay.offers.candidates import candidates, free_offers
from outlay.offers.terms import terms_of
from outlay.units import GIB
from outlay.workload.file import parse_workload

COLUMNS = ("provider", "plan", "parameter", "value", "unit", "source", "as_of", "note")
ROWS = (
    ("kaggle", "free", "gpu_hours", "20", "h/week", "hours.example", "2026-01-02", ""),
    ("kaggle", "free", "gpus", "3", "count", "made up", "2026-01-01", ""),
    ("kaggle", "free", "vcpus", "6", "count", "made up", "2026-01-01", ""),
    ("kaggle", "free", "ram_gb", "32", "GiB", "made up", "2026-01-01", ""),
)
SMALL = '[step]\nprofile = "resnet50"\n[length]\nsamples = 1000\n'
NOTEBOOK = '[prefer]\naccess = "notebook"\n'


@pytest.fixture
def made_up(monkeypatch):
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    monkeypatch.setattr(chosen_from, "rows_of", lambda _: rows)
    chosen_from.subscription_facts.cache_clear()
    yield
    chosen_from.subscription_facts.cache_clear()


def test_the_free_offer_is_as_the_table_says(made_up):
    (offer,) = free_offers()
    assert (offer.provider, offer.instance, offer.gpu) == ("kaggle", "free notebook", "T4")
    assert (offer.gpus, offer.vcpus, offer.ram_bytes) == (3, 6, 32 * GIB)
    assert offer.price_usd_per_hour == 0
    assert (offer.source, offer.as_of) == ("hours.example", "2026-01-02")


def test_free_hours_a_week_are_a_term_of_the_provider():
    # 30 h a week, in sessions of at most 12 h
    terms = terms_of("kaggle")
    assert terms.weekly_s == 30 * 3600
    assert terms.longest_session_s == 12 * 3600
    assert terms.quality("access") == "notebook"


@pytest.fixture
def two_bundled(monkeypatch):
    bundled = (an_offer("aws", "g4", region="us-east-1"), an_offer("lambda", "one", gpu="A10"))
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: bundled)


def providers(text):
    return [offer.provider for offer in candidates(parse_workload(SMALL + text))]


def test_notebooks_are_no_candidates_unless_asked_for(two_bundled):
    assert providers("") == ["aws", "lambda"]
    assert providers('[prefer]\naccess = "container"\n') == ["aws", "lambda"]
    assert sorted(providers(NOTEBOOK)) == ["aws", "kaggle", "lambda"]


def test_notebooks_are_selected_as_everything_is(two_bundled):
    assert providers(f'{NOTEBOOK}[consider]\ngpus = ["T4"]\nmax_gpus = 1\n') == ["aws"]
    assert sorted(providers(f'{NOTEBOOK}[consider]\ngpus = ["T4"]\n')) == ["aws", "kaggle"]
    assert providers(f'{NOTEBOOK}[consider]\nproviders = ["kaggle"]\n') == ["kaggle"]
    assert sorted(providers(f'{NOTEBOOK}[leave_out]\nproviders = ["kaggle"]\n')) == [
        "aws",
        "lambda",
    ]


def test_without_bundled_offers_there_is_no_notebook_either(two_bundled):
    assert providers(f"{NOTEBOOK}[consider]\nbundled = false\n") == []
