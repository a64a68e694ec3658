"""Sources side by side: which machines are the same, how far apart, and whose price is used."""

from __future__ import annotations

from tests.builders import an_offer

from outlay.offers.catalog import gpu_filter, snapshot_offers
from outlay.prices.checks import as_lists, compare_sources
from outlay.prices.sources import ProviderPrices

SKYPILOT, GPUHUNT, BUNDLED = "v8/acme/vms.csv", "gpuhunt 20261115", "snapshot"


def listed(instance="gpu_8x", usd=8.0, *, cited=SKYPILOT, as_of="2026-11-15", **more):
    said = {"gpu": "H100 SXM", "gpus": 8, "region": "north"} | more
    return an_offer(instance=instance, usd=usd, source=cited, as_of=as_of, **said)


def says(source, *offers, as_of="2026-11-15", provider="acme"):
    return ProviderPrices(
        source=source,
        provider=provider,
        as_of=as_of,
        fetched_at="2026-11-16T20:15:00Z",
        offers=offers,
    )


def sources_of(machine):
    return [(price.source, price.is_used) for price in machine.prices]


def test_the_newest_is_used_and_others_are_held_against_it():
    old = listed(usd=10.0, as_of="2026-11-01")
    new = listed(usd=8.0, cited=GPUHUNT)
    lists = [says("skypilot", old, as_of="2026-11-01"), says("gpuhunt", new)]
    (machine,) = compare_sources(lists, [new]).machines
    assert sources_of(machine) == [("gpuhunt", True), ("skypilot", False)]
    # 10 / 8 = 1.25: a quarter more, and no more than that
    assert [price.more_fraction for price in machine.prices] == [None, 0.25]
    assert machine.apart_fraction == 0.25
    assert machine.doubts == ("sources disagree",)
    assert machine.why == "the newest"
    assert machine.offer is new


def test_of_one_day_one_is_preferred():
    first, second = listed(), listed(cited=GPUHUNT)
    lists = [says("skypilot", first), says("gpuhunt", second)]
    (machine,) = compare_sources(lists, [first]).machines
    assert machine.why == "preferred to gpuhunt, which is as new"
    assert machine.doubts == ()
    assert machine.apart_fraction == 0.0


def test_a_list_of_one_s_own_goes_first():
    own, other = listed(usd=7.0, cited="prices.csv"), listed()
    (machine,) = compare_sources([says("skypilot", other), says("own", own)], [own]).machines
    assert sources_of(machine) == [("own", True), ("skypilot", False)]
    assert machine.why == "your own list goes first"
    assert machine.doubts == ()


def test_the_bundled_snapshot_is_one_more_column_and_no_disagreement():
    bundled = listed(usd=16.0, cited=BUNDLED, as_of="2026-08-22")
    now = listed(usd=8.0)
    lists = [*as_lists("bundled", [bundled], "2026-08-22"), says("skypilot", now)]
    (machine,) = compare_sources(lists, [now]).machines
    assert sources_of(machine) == [("skypilot", True), ("bundled", False)]
    assert machine.prices[1].more_fraction == 1.0
    assert (machine.doubts, machine.why) == ((), "refreshed")


def test_bundled_prices_may_be_what_a_plan_takes():
    bundled, refreshed = listed(cited=BUNDLED), listed(as_of="2026-01-01")
    lists = [says("skypilot", refreshed, as_of="2026-01-01"), *as_lists("bundled", [bundled], "x")]
    (machine,) = compare_sources(lists, [bundled]).machines
    assert sources_of(machine) == [("bundled", True), ("skypilot", False)]
    assert machine.why == "nothing newer was refreshed"


def test_a_machine_that_no_plan_takes_is_said_so():
    lists = [says("skypilot", listed()), says("gpuhunt", listed(cited=GPUHUNT))]
    (machine,) = compare_sources(lists, []).machines
    assert not any(price.is_used for price in machine.prices)
    assert machine.why == "no plan takes it: the newest list of acme does not have it"


def test_what_a_plan_takes_is_known_by_its_price_where_a_later_list_is_cited():
    sky, gpuhunt = listed(usd=9.0), listed(usd=8.0, cited=GPUHUNT)
    confirmed = listed(usd=9.0, cited="https://example.org/pricing")
    lists = [says("gpuhunt", gpuhunt), says("skypilot", sky)]
    (machine,) = compare_sources(lists, [confirmed]).machines
    assert sources_of(machine) == [("skypilot", True), ("gpuhunt", False)]


def test_machines_of_other_names_stand_in_one_row():
    named, other = listed("gpu_8x_h100"), listed("8x H100", cited=GPUHUNT)
    lists = [says("skypilot", named), says("gpuhunt", other)]
    (machine,) = compare_sources(lists, [named]).machines
    assert [price.offer.instance for price in machine.prices] == ["gpu_8x_h100", "8x H100"]


def test_what_one_source_alone_lists_is_counted():
    lists = [
        says("skypilot", listed("a"), listed("b", gpus=4)),
        says("gpuhunt", listed("a", cited=GPUHUNT), listed("c", gpus=2), listed("d", gpus=1)),
    ]
    comparison = compare_sources(lists, [])
    assert [machine.offer.instance for machine in comparison.machines] == ["a"]
    assert comparison.only_one == {"gpuhunt": 2, "skypilot": 1}


def test_the_farthest_apart_come_first():
    usd = {"a": (8.0, 8.0), "b": (8.0, 12.0), "c": (8.0, 9.0)}
    lists = [
        says("skypilot", *(listed(name, first) for name, (first, _) in usd.items())),
        says("gpuhunt", *(listed(name, other) for name, (_, other) in usd.items())),
    ]
    machines = compare_sources(lists, []).machines
    assert [machine.offer.instance for machine in machines] == ["b", "c", "a"]
    assert machines[0].doubts == ("sources disagree", "sources far apart")


def test_a_price_nobody_knows_is_apart_from_none():
    lists = [says("skypilot", listed(usd=None)), says("gpuhunt", listed())]
    (machine,) = compare_sources(lists, []).machines
    assert (machine.apart_fraction, machine.doubts) == (None, ())


def test_only_a_gpu_a_number_of_it_and_a_provider():
    offers = [listed("a"), listed("b", gpus=1), listed("c", gpu="L4", gpus=8)]
    lists = [says(source, *offers) for source in ("skypilot", "gpuhunt")]
    lists += [says(source, listed("z"), provider="other") for source in ("skypilot", "gpuhunt")]

    def names(spec, *providers):
        found = compare_sources(lists, [], gpu_filter(spec), providers).machines
        return [machine.offer.instance for machine in found]

    assert names("H100", "acme") == ["a", "b"]
    assert names("H100:8", "acme") == ["a"]
    assert names("L4") == ["c"]
    assert names("H100:8") == ["a", "z"]


def test_the_bundled_offers_beside_themselves_agree():
    offers = snapshot_offers()
    lists = as_lists("bundled", offers, "2026-08-22")
    assert sum(len(one.offers) for one in lists) == len(offers)
    again = [says("again", *one.offers, provider=one.provider) for one in lists]
    comparison = compare_sources([*lists, *again], offers)
    hosts = sum(any(d.word == "marketplace" for d in offer.doubts) for offer in offers)
    # What is sold on a market is no machine twice, and is counted for either source.
    assert comparison.only_one == {"again": hosts, "bundled": hosts}
    assert len(comparison.machines) == len(offers) - hosts
    assert not any(machine.doubts or machine.apart_fraction for machine in comparison.machines)
