"""What has no known price: the middle of what others charge ranks it, and is in no total."""

from __future__ import annotations

import pytest
from tests.builders import a_run, a_workload, an_offer, an_option, exactly, some_terms

from outlay.cost.lines import Breakdown, Cost, Line, UnpricedItem
from outlay.cost.storage import storage_and_transfer_lines
from outlay.offers import terms
from outlay.offers.terms import usual_egress_usd_per_byte, usual_usd_per_byte_month
from outlay.plan.ranking import rank_options
from outlay.units import GB
from outlay.workload.workload import Dataset, Preferences


def prices(volume=None, egress=None):
    stored = {"volume": None if volume is None else volume / GB, "object": None, "registry": None}
    out = None if egress is None else egress / GB
    return some_terms(storage_usd_per_byte_month=stored, egress_usd_per_byte=out)


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Volumes at $0.05, $0.10 and $0.30 a GB-month, transfer at $0.00, $0.02, $0.08, $0.12."""
    known = [prices(0.05, 0.0), prices(0.10, 0.02), prices(0.30, 0.08), prices(None, 0.12)]
    monkeypatch.setattr(terms, "all_terms", lambda: dict(enumerate(known)))
    _forget()
    yield
    _forget()


def _forget():
    usual_usd_per_byte_month.cache_clear()
    usual_egress_usd_per_byte.cache_clear()


def test_usual_is_the_middle_of_those_that_say():
    # of 0.05, 0.10 and 0.30
    assert usual_usd_per_byte_month("volume") == pytest.approx(0.10 / GB)
    # of 0, 0.02, 0.08 and 0.12: nothing is a price, too
    assert usual_egress_usd_per_byte() == pytest.approx(0.05 / GB)


def test_where_nobody_says_nothing_is_usual():
    assert usual_usd_per_byte_month("registry") is None


def kept(data, *, days=30.0):
    run = a_run(days * 86_400)
    return storage_and_transfer_lines(
        a_workload(data=data), an_offer(), run, lambda name: some_terms(name, "Acme")
    )


def test_storage_without_a_price_has_a_usual_one():
    lines, (missing,) = kept(Dataset(size_bytes=100 * GB))
    assert lines == []
    assert missing.what == "volume storage of the dataset at Acme: no price known"
    # 100 GB x $0.10 x 1 month
    assert missing.usual_usd == pytest.approx(10.0)
    _, (half,) = kept(Dataset(size_bytes=100 * GB), days=15)
    assert half.usual_usd == pytest.approx(5.0)


def test_transfer_without_a_price_has_a_usual_one():
    _, missing = kept(Dataset(size_bytes=100 * GB, storage="none", at="depot"))
    (transfer,) = missing
    assert transfer.what == "transfer of the dataset out of Acme: no price known"
    # 100 GB x $0.05
    assert transfer.usual_usd == pytest.approx(5.0)


def test_what_is_nowhere_usual_counts_nothing():
    _, (missing,) = kept(Dataset(size_bytes=100 * GB, storage="object"))
    assert missing.usual_usd is None


def a_cost_without(usd, *usual):
    return Cost(
        breakdown=Breakdown(lines=(Line(name="compute", usd=usd),)),
        unpriced=tuple(UnpricedItem(what="storage", usual_usd=one) for one in usual),
    )


def test_the_usual_price_ranks_but_is_in_no_total():
    option = an_option(cost=a_cost_without(10.0, 3.0, 2.0))
    assert option.usd == 10.0
    assert option.cost_usd == exactly(10.0)
    # 10 + 3 + 2
    assert option.merit_usd == pytest.approx(15.0)
    assert option.cost.unknown == ("storage", "storage")


def test_what_has_no_usual_price_ranks_as_it_is():
    option = an_option(cost=a_cost_without(10.0, None))
    assert option.merit_usd == pytest.approx(10.0)


def test_a_preference_is_worth_a_share_of_what_is_usual_too():
    prefer = Preferences(providers=("acme",), premium_fraction=0.5)
    option = an_option(cost=a_cost_without(10.0, 5.0), prefer=prefer)
    # (10 + 5) / 1.5
    assert option.merit_usd == pytest.approx(10.0)


def test_not_saying_its_prices_is_no_advantage():
    silent = an_option(instance="silent", cost=a_cost_without(10.0, 3.0))
    open_ = an_option(instance="open", cost=a_cost_without(12.0))
    dear = an_option(instance="dear", cost=a_cost_without(14.0))
    ranked = rank_options([silent, dear, open_])
    # by 12, 10 + 3 and 14
    assert [option.offer.instance for option in ranked] == ["open", "silent", "dear"]
    assert ranked[0].why_not is None
    # 10 + 3 against 12
    assert ranked[1].why_not.startswith("costs $1.00 more")
    assert ranked[1].why_not.endswith("what is not priced counted as usual")
    assert ranked[2].why_not.startswith("costs $2.00 more")
