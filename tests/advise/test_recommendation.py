"""Break-evens and rules of thumb on figures made up for the purpose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outlay.advise.cards import cards, electricity_usd_per_kwh
from outlay.advise.machines import machine_of, reference_of, rest_usd
from outlay.advise.recommendation import TurningPoint, rule_tests
from outlay.advise.request import AdviceRequest, find_purpose, monthly_use, workload_for
from outlay.errors import NoOption, NotKnown
from outlay.trace.store import find_profile
from outlay.uncertainty import Estimate
from outlay.units import HOUR_S

TODAY = "2026-11-15"


def asked(usage="2h/day", months=24, **changes):
    return AdviceRequest(
        profile=find_profile("resnet50"),
        use=monthly_use(usage),
        months=months,
        today=TODAY,
        **changes,
    )


def point(question, even_hours, *, buy_usd, rent_usd, kind="spot"):
    """A purchase that breaks even after so many hours; busy as long as the use asked about."""
    return TurningPoint(
        buy=SimpleNamespace(
            busy_hours=question.use.hours_per_month, usd_per_month=Estimate.exactly(buy_usd)
        ),
        rent=SimpleNamespace(kind=kind, usd_per_month=Estimate.exactly(rent_usd)),
        even=SimpleNamespace(use_s=None if even_hours is None else even_hours * HOUR_S),
        request=question,
    )


def test_hours_as_months_and_as_hours_a_day():
    # 900 h at 60 h a month: 15 months; over 24 months of 30 days 900 / 720 = 1.25 h a day
    found = point(asked(), 900, buy_usd=20, rent_usd=30)
    assert found.months == pytest.approx(15)
    assert found.hours_per_day == pytest.approx(1.25)
    assert found.within_reach
    assert found.buying_is_cheaper


def test_what_never_pays_has_no_hours():
    found = point(asked(), None, buy_usd=20, rent_usd=1)
    assert (found.hours, found.months, found.hours_per_day) == (None, None, None)
    assert not found.buying_is_cheaper


def test_more_hours_than_the_months_have_are_out_of_reach():
    # 24 months have 17,280 h
    assert not point(asked(), 17_281, buy_usd=20, rent_usd=10).within_reach
    assert point(asked(), 17_279, buy_usd=20, rent_usd=10).within_reach


@pytest.mark.parametrize(
    ("usage", "even_hours", "says", "holds"),
    [
        ("2h/day", 2000, "spot", True),  # 33 months to go: spot is right
        ("2h/day", 900, "spot", False),  # pays in 15 months of 24
        ("24/7", 10_000, "buy", True),  # 13.9 months
        ("24/7", 20_000, "buy", False),  # 27.8 months
    ],
)
def test_24_7_rule(usage, even_hours, says, holds):
    question = asked(usage)
    rules = rule_tests([point(question, even_hours, buy_usd=20, rent_usd=30)], question)
    rule = next(one for one in rules if one.rule.startswith("24/7"))
    assert (rule.says, rule.holds) == (says, holds)


@pytest.mark.parametrize(
    ("months", "even_hours", "says", "holds"),
    [
        (6, 900, "rent", True),  # 15 months to go
        (6, 300, "rent", False),  # 5 months
        (24, 900, "buy", True),
        (24, 2000, "buy", False),
    ],
)
def test_year_rule(months, even_hours, says, holds):
    question = asked(months=months)
    rules = rule_tests([point(question, even_hours, buy_usd=20, rent_usd=30)], question)
    rule = next(one for one in rules if one.rule.startswith("cloud"))
    assert (rule.says, rule.holds) == (says, holds)


def test_no_rule_is_tested_without_anything_to_buy():
    assert list(rule_tests([], asked())) == []


def used_3090():
    return next(card for card in cards(TODAY) if card.name == "used RTX 3090")


def test_a_machine_is_card_and_desktop_and_loses_what_both_lose():
    machine = machine_of(used_3090(), asked(), 3600.0)
    # 1207 + 1038
    assert machine.purchase_usd.likely == pytest.approx(2245)
    # Sold: 1207 x 0.92^2 x 0.9 = 919.444 and 1038 x 0.79^2 = 647.82
    sold = machine.purchase_usd.likely * machine.resale_fraction.likely
    assert sold == pytest.approx(919.444 + 647.816, abs=0.01)


def test_where_a_machine_is_there_only_the_card_is_bought():
    machine = machine_of(used_3090(), asked(own_gpu="GTX 1080"), 3600.0)
    assert machine.purchase_usd.likely == pytest.approx(1207)
    # The second card asks for a bigger board and supply
    assert rest_usd(asked(gpus=2)).likely == pytest.approx(1038 + 466)


def test_a_month_of_work_is_what_the_reference_does_in_the_hours():
    found = reference_of(asked(hours_on="T4"), ())
    assert found.gpu == "T4"
    workload = workload_for(asked(), found.samples_per_month)
    assert workload.samples() * 30 == pytest.approx(found.samples_per_month)
    # Sessions of 2 h may take twice that on a slower machine
    assert workload.limits.deadline_s == pytest.approx(4 * HOUR_S)


def test_24_7_leaves_a_twentieth_of_slack():
    workload = workload_for(asked("24/7"), 1e6)
    assert workload.limits.deadline_s == pytest.approx(1.05 * 720 * HOUR_S)


def test_hours_on_what_does_not_hold_the_step_are_no_hours():
    question = AdviceRequest(
        profile=find_profile("llama-1b"),
        use=monthly_use("2h/day"),
        months=24,
        today=TODAY,
        hours_on="GTX 1080",
    )
    with pytest.raises(NoOption, match="GTX 1080"):
        reference_of(question, ())


def test_the_reference_is_the_card_one_has_where_the_step_fits_it():
    assert reference_of(asked(own_gpu="RTX 3060"), ()).gpu == "RTX 3060"


def test_the_reference_is_within_the_purse():
    listed = [card for card in cards(TODAY) if card.gpu.name in ("RTX 3090", "RTX 3070")]
    used = [card for card in listed if card.condition == "used"]
    # 212 + 1038 = 1250 is within 1300, 1207 + 1038 is not
    assert reference_of(asked("24/7", budget_usd=1300), used).gpu == "RTX 3070"


def test_hours_are_counted_on_a_card_whose_kind_was_measured():
    names = ("RX 7900 XTX", "RTX 5070 Ti", "RTX 3090")
    listed = [card for card in cards(TODAY) if card.gpu.name in names]
    assert {card.gpu.name for card in listed} == set(names)
    found = reference_of(asked("24/7"), listed)
    assert (found.gpu, "measured" in found.why) == ("RTX 3090", True)
    unknown = [card for card in listed if card.gpu.name != "RTX 3090"]
    found = reference_of(asked("24/7"), unknown)
    assert found.gpu in names
    assert "measured" not in found.why


@pytest.mark.parametrize("text", ["kaggle", "KAGGLE", " Kaggle ", "competition"])
def test_purposes_by_any_name(text):
    assert find_purpose(text).name == "kaggle"


@pytest.mark.parametrize("text", ["state-of-the-art", "SOTA", "state of the art"])
def test_hyphens_do_not_matter(text):
    assert find_purpose(text).name == "state of the art"


def test_electricity_by_country():
    us, _ = electricity_usd_per_kwh("us")
    assert us == pytest.approx(0.1872)
    korea, fact = electricity_usd_per_kwh("KR")
    assert 0.05 < korea < 0.2
    assert fact.unit == "KRW/kWh"
    with pytest.raises(NotKnown):
        electricity_usd_per_kwh("mars")
