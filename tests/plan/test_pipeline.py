from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_doubt, a_profile, an_offer

from outlay.errors import InputError, NotKnown
from outlay.facts import assumptions
from outlay.offers import candidates as chosen_from
from outlay.offers.candidates import candidates
from outlay.offers.catalog import reserved_offers
from outlay.plan import placement
from outlay.plan.from_measurement import profile_for
from outlay.plan.pipeline import (
    assumed_overheads,
    best_offers,
    plan_workload,
    rank_offers,
)
from outlay.uncertainty import InputRecorder
from outlay.units import HOUR_S
from outlay.workload.file import parse_workload
from outlay.workload.workload import Step

SMALL = """
    [step]
    profile = "made up"
    batch_size = 10
    [length]
    samples = 36_000
    [usage]
    setup = "1s"
    """
# 36,000 samples at 10 a step are 3600 steps.

OFFERS = (
    an_offer("aws", "g4", gpu="T4", region="us-east-1", usd=0.5, spot_usd=0.2),
    an_offer("aws", "g4", gpu="T4", region="eu-west-1", usd=0.6),
    an_offer("aws", "p4", gpu="A100 40GB SXM", gpus=8, region="us-east-1", usd=20.0),
    an_offer("gcp", "g2", gpu="L4", region="us-central1", usd=0.7),
    an_offer("lambda", "one", gpu="A100 40GB SXM", region="any", usd=1.3),
    an_offer("lambda", "open", gpu="A100 80GB", region="any", usd=1.8),
)


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """A few bundled offers, and a host that needs a second for each step on any GPU."""
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: OFFERS)
    slow = a_calibration(host_view_s=1e-3, host_forward_s=1e-3, error_on_Turing=0.4)
    monkeypatch.setattr(placement, "calibration", lambda: slow)
    placement._best_step.cache_clear()
    yield
    placement._best_step.cache_clear()


def considered(text):
    found = candidates(parse_workload(SMALL + text))
    return [(offer.provider, offer.instance, offer.region) for offer in found]


def planned(text="", profile=None):
    small = a_profile(flops_per_sample=1e9, bytes_per_sample=1e6, trainable_parameters=1000)
    return plan_workload(parse_workload(SMALL + text), profile or small)


def option_of(plan, instance, tenancy="on-demand"):
    return next(
        one for one in plan.options if one.offer.instance == instance and one.tenancy == tenancy
    )


EAST, WEST, EIGHT, L4, ONE, OPEN = [
    ("aws", "g4", "us-east-1"),
    ("aws", "g4", "eu-west-1"),
    ("aws", "p4", "us-east-1"),
    ("gcp", "g2", "us-central1"),
    ("lambda", "one", "any"),
    ("lambda", "open", "any"),
]


# --- candidates ---


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", [EAST, WEST, EIGHT, L4, ONE, OPEN]),
        ("[consider]\nproviders = ['AWS']", [EAST, WEST, EIGHT]),
        ("[consider]\ngpus = ['T4', 'L4']", [EAST, WEST, L4]),
        ("[consider]\ngpus = ['A100']", [EIGHT, ONE, OPEN]),
        ("[consider]\ngpus = ['A100:8']", [EIGHT]),
        ("[consider]\ngpus = ['24GB..40GB']", [EIGHT, L4, ONE]),
        ("[consider]\nregions = ['us']", [EAST, EIGHT, L4, ONE, OPEN]),
        ("[consider]\ninstances = ['g*']", [EAST, WEST, L4]),
        ("[consider]\nmax_gpus = 1", [EAST, WEST, L4, ONE, OPEN]),
        # every restriction of [consider] holds
        ("[consider]\nproviders = ['aws']\ngpus = ['T4']\nregions = ['eu']", [WEST]),
        # any of [leave_out] is enough
        ("[leave_out]\nproviders = ['aws']", [L4, ONE, OPEN]),
        ("[leave_out]\nproviders = ['gcp']\ngpus = ['A100']", [EAST, WEST]),
        ("[leave_out]\nregions = ['us-east']", [WEST, L4, ONE, OPEN]),
        ("[leave_out]\ninstances = ['p4', 'o*']", [EAST, WEST, L4]),
        ("[leave_out]\ngpus = ['A100:8']", [EAST, WEST, L4, ONE, OPEN]),
        # both
        ("[consider]\nproviders = ['aws']\n[leave_out]\nregions = ['eu']", [EAST, EIGHT]),
        ("[consider]\nbundled = false", []),
    ],
)
def test_consider_and_leave_out(text, kept):
    assert considered(text) == kept


OWN = """
    [[offer]]
    provider = "acme"
    instance = "quoted"
    gpu = "H100 SXM"
    gpus = 8
    price_per_hour = 16
    [[machine]]
    name = "desk"
    gpu = "RTX 3090"
    host_watts = 50
    electricity_per_kwh = 0.25
    """


def test_ones_own_stand_beside_the_bundled_offers():
    assert considered(OWN) == [
        ("acme", "quoted", "any"),
        ("own", "desk", "here"),
        *considered(""),
    ]


def test_ones_own_are_not_filtered():
    own = [("acme", "quoted", "any"), ("own", "desk", "here")]
    assert considered("[consider]\ngpus = ['L4']\nmax_gpus = 1\n" + OWN) == [*own, L4]
    assert considered("[consider]\nbundled = false\n" + OWN) == own


@pytest.mark.parametrize("table", ["consider", "leave_out"])
@pytest.mark.parametrize(
    ("key", "name", "noun"),
    [
        ("gpus", "Z9000", "GPU"),
        ("providers", "awz", "provider"),
        ("regions", "us-eest", "region"),
    ],
)
def test_unknown_names_are_refused(table, key, name, noun):
    with pytest.raises(NotKnown, match=f"No {noun} is known as '{name}'") as caught:
        considered(f"[{table}]\n{key} = ['{name}']")
    assert caught.value.exit_code == 2


def test_two_quotes_of_one_identity_are_refused():
    quote = "[[offer]]\nprovider = 'a'\ninstance = 'b'\ngpu = 'T4'\nprice_per_hour = 1\n"
    with pytest.raises(InputError, match=r"Two \[\[offer\]\] tables are a / b / any"):
        considered(quote + quote)


@pytest.mark.parametrize(
    "text",
    [
        "[data]\nat = 'awz'",
        "[data]\nkept_at = 'awz'",
        "[[stored]]\nname = 'x'\nsize = '1GB'\nat = 'awz'",
    ],
)
def test_unknown_places_are_refused(text):
    with pytest.raises(NotKnown, match="No provider is known as 'awz'"):
        planned(text)


def test_places_are_known_in_any_case():
    text = "[consider]\nproviders = ['aws']\n[data]\nsize = '1GB'\nat = '{}'"
    spelled = {name: planned(text.format(name)).chosen.cost for name in ("aws", "AWS")}
    lines = {name: [(x.name, x.usd) for x in one.breakdown.lines] for name, one in spelled.items()}
    assert lines["AWS"] == lines["aws"]


@pytest.mark.parametrize(
    "text",
    [
        "[consider]\nbundled = false",
        "[consider]\nproviders = ['gcp']\ngpus = ['T4']",
        "[consider]\ninstances = ['nothing*']",
        "[consider]\ntenancies = ['reserved']",
        "[leave_out]\nproviders = ['aws', 'gcp', 'lambda']",
        "[leave_out]\ntenancies = ['on-demand', 'spot']",
    ],
)
def test_no_candidate_left(text):
    with pytest.raises(InputError, match="No candidate is left") as caught:
        planned(text)
    assert caught.value.exit_code == 2
    assert "[consider]" in caught.value.why
    assert "outlay offers" in caught.value.fix


# --- the plan ---


@pytest.mark.parametrize(
    ("text", "tenancies"),
    [
        ("", {"on-demand", "spot", "owned"}),
        ("[consider]\ntenancies = ['spot']", {"spot"}),
        ("[consider]\ntenancies = ['on-demand', 'owned']", {"on-demand", "owned"}),
        ("[leave_out]\ntenancies = ['spot']", {"on-demand", "owned"}),
        ("[consider]\ntenancies = ['spot', 'owned']\n[leave_out]\ntenancies = ['owned']", {"spot"}),
    ],
)
def test_tenancies(text, tenancies):
    plan = planned(text + OWN)
    assert {one.tenancy for one in plan.options} == tenancies


def test_the_whole_way_from_a_file_to_a_choice():
    plan = planned("[consider]\nproviders = ['gcp']")
    chosen = plan.chosen
    # 1000 operations x 1 ms are a second a step: 3600 s, and 1 s of set-up
    assert chosen.step.step_time_s.likely == pytest.approx(1.0)
    assert chosen.run.busy_s == pytest.approx(3601)
    # $0.70 for the hour, and a second more
    assert chosen.cost.breakdown.line_usd("compute") == pytest.approx(0.70)
    assert chosen.cost.breakdown.line_usd("set-up") == pytest.approx(0.70 / 3600)
    assert chosen.samples == 36_000
    # a bit above $0.70 for 0.036 million samples
    assert chosen.usd_per_million_samples == pytest.approx(chosen.cost.usd / 0.036)
    assert plan.options == (chosen,)


def test_the_cheapest_sound_one_is_chosen():
    plan = planned("[leave_out]\ntenancies = ['spot']")
    # the host is the bound, so all take as long and the cheapest hour wins
    assert plan.chosen.offer.identity == EAST
    assert plan.chosen.rank == 1
    assert [one.rank for one in plan.options] == [1, 2, 3, 4, 5, 6]


def test_several_gpus_share_the_samples():
    plan = planned("[consider]\ngpus = ['A100:8']")
    option = plan.chosen
    assert option.step.global_batch_size == 80
    # 36,000 / 80 = 450 steps of a second and a little exchange
    assert option.run.training_s == pytest.approx(450, rel=0.01)


def test_spot_is_interrupted_and_on_demand_is_not():
    plan = planned("[consider]\nregions = ['us-east']\ngpus = ['T4']")
    spot, kept = option_of(plan, "g4", "spot").run, option_of(plan, "g4").run
    assert spot.interruptions > 0
    assert spot.lost_s > 0
    assert kept.interruptions == kept.lost_s == kept.restart_s == 0


def two_ways(usd, spot_usd, interruptions):
    """One quote on demand and as spot, its options by tenancy."""
    plan = planned(f"""
    [consider]
    bundled = false
    [checkpoint]
    size = "1GB"
    [[offer]]
    provider = "acme"
    gpu = "T4"
    price_per_hour = {usd}
    spot_per_hour = {spot_usd}
    interruptions_per_month = {interruptions}
    """)
    return {one.tenancy: one for one in plan.options}


def test_spot_that_is_never_interrupted_is_on_demand_at_its_price():
    ways = two_ways(2.0, 2.0, 0)
    spot, kept = ways["spot"], ways["on-demand"]
    assert spot.run == kept.run
    lines = [[(x.name, x.usd) for x in one.cost.breakdown.lines] for one in (spot, kept)]
    assert lines[0] == lines[1]
    assert spot.run_time_s == kept.run_time_s
    # A spot price may fall while the run runs; above on-demand nobody would take it.
    assert spot.cost_usd.low < kept.cost_usd.low
    assert spot.cost_usd.high <= kept.cost_usd.high


def test_spot_that_is_interrupted_pays_for_it():
    ways = two_ways(2.0, 2.0, 100)
    assert ways["spot"].usd > ways["on-demand"].usd
    # Beside the rate the number of interruptions is uncertain: the range is wider.
    spans = {name: one.cost_usd.high - one.cost_usd.low for name, one in ways.items()}
    assert spans["spot"] > spans["on-demand"]


def test_a_quote_with_a_term_is_reserved_and_paid_to_its_end():
    plan = planned("""
    [consider]
    bundled = false
    [[offer]]
    provider = "acme"
    gpu = "T4"
    price_per_hour = 0.5
    term = "30d"
    """)
    (option,) = plan.options
    assert option.tenancy == "reserved"
    # 720 h x $0.50
    assert option.usd == pytest.approx(360)
    # the hour of training and the second of set-up
    unused = option.cost.breakdown.line_usd("unused commitment")
    assert unused == pytest.approx(0.5 * (720 - 3601 / 3600))


# --- cash ---

TERM = """
    [consider]
    bundled = false
    [[offer]]
    provider = "acme"
    gpu = "T4"
    price_per_hour = 0.5
    term = "30d"
    """


def test_a_term_paid_upfront_is_cash_on_the_first_day_and_bears_interest():
    (option,) = planned(TERM + "upfront = 360").options
    # 720 h x $0.50 at once; half of it x 5 % x 30 / 365 years
    assert option.cash_upfront_usd == pytest.approx(360)
    assert option.cash.due_usd() == 0.0
    interest_usd = 180 * 0.05 * 30 / 365
    assert option.cost.breakdown.line_usd("interest") == pytest.approx(interest_usd)
    assert option.usd == pytest.approx(360 + interest_usd)
    # the assumed rate is a range, and so is the cost
    assert option.cost_usd.low < option.usd < option.cost_usd.high


def test_a_term_paid_as_one_goes_obliges_to_its_end():
    (option,) = planned(TERM).options
    assert option.cash_upfront_usd == 0.0
    # 720 h x $0.50; after ten days two thirds of it
    assert option.cash.due_usd() == pytest.approx(360)
    assert option.cash.due_usd(240 * HOUR_S) == pytest.approx(240)


def test_the_rate_of_interest_may_be_said():
    said = SMALL.replace('setup = "1s"', 'setup = "1s"\n    interest_per_year = 0.1')
    plan = plan_workload(parse_workload(said + TERM + "upfront = 360"), a_profile())
    (option,) = plan.options
    assert option.cost.breakdown.line_usd("interest") == pytest.approx(180 * 0.1 * 30 / 365)
    assert "bears interest at 10 % a year until" in " ".join(plan.assumptions)
    assumed = " ".join(planned(TERM + "upfront = 360").assumptions)
    assert "bears interest at 5 % a year (guess) until" in assumed


DESKTOP = """
    [limits]
    budget = 100
    [consider]
    providers = ["gcp"]
    [[machine]]
    name = "desktop"
    gpu = "RTX 3090"
    host_watts = 100
    electricity_per_kwh = 0.12
    purchase = 2200
    years = 3
    utilisation = 0.15
    """


def test_the_labs_desktop_for_2200_dollars_is_not_within_a_budget_of_100():
    plan = planned(DESKTOP)
    desktop = option_of(plan, "desktop", "owned")
    assert desktop.usd < 100
    assert desktop.cash_upfront_usd == 2200
    assert not desktop.within_budget
    assert desktop.why_not == "needs $2,200 on the first day, over the budget of $100"
    assert plan.chosen.offer.provider == "gcp"
    # whether buying pays is said all the same, and that it is over the budget
    (one,) = plan.break_even
    assert one.use_s is not None
    assert one.over_budget == desktop.why_not


def test_a_purchase_that_may_be_paid_at_once_is_within_a_small_budget():
    said = DESKTOP.replace("budget = 100", "budget = 100\n    cash_upfront = 2500")
    assert option_of(planned(said), "desktop", "owned").within_budget


def test_two_desktops_are_bought_for_two_machines():
    said = SMALL.replace('setup = "1s"', 'setup = "1s"\n    machines = 2') + DESKTOP
    plan = plan_workload(parse_workload(said), a_profile())
    assert option_of(plan, "desktop", "owned").cash_upfront_usd == 4400


def test_a_bundled_term_has_a_range_and_is_drawn_by_its_provider():
    # as discounts are of one region and one day
    said = SMALL.replace('setup = "1s"', 'setup = "1s"\n    horizon = "3 years"')
    offer = an_offer("aws", "g5.xlarge", gpu="A10G", region="us-east-1", usd=1.0)
    plan = rank_offers(parse_workload(said), list(reserved_offers(offer)), a_profile())
    inputs = InputRecorder()
    for option in plan.options:
        assert option.tenancy == "reserved"
        assert option.cost_usd.low < option.usd < option.cost_usd.high
        option.drawn(inputs)
    assert "commitment price: aws" in inputs.inputs


def test_a_bundled_term_of_three_years_all_upfront_by_hand():
    said = SMALL.replace(
        'setup = "1s"', 'setup = "1s"\n    sessions_per_month = 4\n    horizon = "36 months"'
    )
    offer = an_offer("aws", "g5.xlarge", gpu="A10G", region="us-east-1", usd=1.0)
    plan = rank_offers(parse_workload(said), list(reserved_offers(offer)), a_profile())
    (option,) = (one for one in plan.options if one.offer.commitment.name == "3 years, all upfront")
    price = option.offer.hourly_usd("reserved")
    assert option.cash_upfront_usd == pytest.approx(price * 26_280)
    # 1,080 days take one term, of which a month bears a 36th; half of it at 5 % for three years
    assert option.usd == pytest.approx(price * 26_280 / 36 * (1 + 0.05 * 3 / 2))
    assert sum(line.usd for line in option.cost.breakdown.lines) == option.cost.usd


def test_offers_over_the_budget_on_the_first_day_take_no_place_among_the_best():
    workload = parse_workload(SMALL + "[limits]\nbudget = 100")
    hourly = an_offer("acme", "hourly", usd=1.0)
    fee = an_offer("acme", "fee", usd=0.5, setup_cost_usd=200.0)
    found = best_offers(workload, [hourly, fee], a_profile())
    assert [option.offer.instance for option in found.options] == ["hourly"]


def test_an_offer_may_have_a_set_up_cost():
    (option,) = planned(
        "[consider]\nbundled = false\n[[offer]]\nprovider = 'acme'\ngpu = 'T4'\n"
        "price_per_hour = 2\nsetup_cost = 30"
    ).options
    assert option.cost.breakdown.line_usd("set-up fee") == 30
    # an hour and a second x $2, and the fee, which is due on the first day
    assert option.usd == pytest.approx(30 + 2 * 3601 / 3600)
    assert option.cash_upfront_usd == 30


def test_ranges_of_a_plan_are_repeatable_and_in_order():
    first, again = planned(), planned()
    for one, other in zip(first.options, again.options, strict=True):
        assert one.ranges == other.ranges
        for found in (one.cost_usd, one.run_time_s, one.calendar_s):
            assert found.low <= found.likely <= found.high


def test_lines_of_every_option_sum_to_its_total():
    for option in planned(OWN).options:
        assert sum((line.usd for line in option.cost.breakdown.lines), 0.0) == option.cost.usd


def test_a_machine_of_ones_own_needs_no_provisioning_and_pays_electricity():
    text = SMALL.replace('[usage]\n    setup = "1s"', "") + OWN + "[consider]\nbundled = false"
    plan = plan_workload(parse_workload(text), a_profile(flops_per_sample=1e9))
    desk = option_of(plan, "desk", "owned")
    assert desk.run.provisioning_s == desk.run.setup_s == 0
    # an hour and a minute to warm up, of 350 W (the RTX 3090's board power) and 50 W, $0.25/kWh
    assert desk.run.warmup_s == 60
    assert desk.cost.usd == pytest.approx(0.1 * 61 / 60)
    rented = option_of(plan, "quoted").run
    # 3 min to get a machine, 10 min for the environment
    assert (rented.provisioning_s, rented.setup_s) == (180, 600)


def test_a_machine_to_be_bought_has_its_break_even():
    plan = planned("""
    [consider]
    providers = ["gcp"]
    [[machine]]
    name = "new"
    gpu = "RTX 3090"
    host_watts = 50
    electricity_per_kwh = 0.25
    purchase = 1500
    resale = 300
    use = "3000h"
    """)
    new = option_of(plan, "new", "owned")
    # (1500 - 300) / 3000 h is $0.40 an hour
    hours = new.run.busy_s / HOUR_S
    assert new.cost.breakdown.line_usd("purchase less resale") == pytest.approx(0.40 * hours)
    (one,) = plan.break_even
    # 1200 / ($0.70 - $0.10) = 2000 h
    assert one.use_s == pytest.approx(2000 * HOUR_S, rel=1e-3)


def test_precision_may_be_changed():
    profile = a_profile(flops_per_sample=1e12, bytes_per_sample=1e6)
    text = SMALL.replace("batch_size = 10", "batch_size = 10\nprecision = '{}'")
    workloads = {
        name: parse_workload(text.format(name) + "[consider]\nproviders = ['gcp']")
        for name in ("as traced", "fp16", "fp32")
    }
    device_s = {
        name: plan_workload(workload, profile).options[0].step.device_time_s
        for name, workload in workloads.items()
    }
    # traced in fp16; an L4 does 121 TFLOP/s in fp16 and 30.3 in fp32, both at the same share
    assert device_s["as traced"] == device_s["fp16"]
    assert device_s["fp32"] / device_s["fp16"] == pytest.approx(121 / 30.3, rel=0.01)


def test_an_open_form_is_noted_and_spans_both():
    option = option_of(planned(profile=a_profile(issued_ops=1, flops_per_sample=1e13)), "open")
    assert option.step.placement.gpu.name == "A100 80GB PCIe"
    assert "form not stated: A100 80GB PCIe taken, the slowest" in option.notes


def test_what_does_not_fit_is_shown_without_a_run():
    # 100 GB a sample fit nowhere
    plan = planned(profile=a_profile(bytes_per_sample=1e11))
    assert plan.chosen is None
    assert all(one.run is None and one.cost is None for one in plan.options)
    assert all("does not fit" in one.why_not for one in plan.options)


def test_limits_reach_every_option():
    plan = planned("[limits]\nbudget = 0.65\ndeadline = '1d'\nconfidence = 0.5")
    # T4 at 0.50 and 0.60 an hour are likely within it, L4 at 0.70 and A100 at 1.30 are not
    within = {one.offer.identity for one in plan.options if one.within_budget}
    assert within == {EAST, WEST}
    assert all(one.meets_deadline for one in plan.options)


def test_a_quote_without_a_price_is_shown_as_such():
    plan = planned("[[offer]]\nprovider = 'acme'\ninstance = 'asked'\ngpu = 'H100 SXM'\n")
    asked = option_of(plan, "asked")
    assert asked.cost is None
    assert asked.run is not None
    assert asked.why_not.startswith("no price known")


def test_doubts_are_noted(monkeypatch):
    doubted = an_offer("aws", "odd", usd=0.1, doubts=(a_doubt("looks odd"),))
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: (*OFFERS, doubted))
    plan = planned()
    assert option_of(plan, "odd").notes == ("price: looks odd",)
    assert plan.chosen.offer.instance != "odd"


def test_the_users_terms_take_the_place_of_the_tables():
    plan = planned("""
    [consider]
    providers = ["gcp"]
    [[stored]]
    name = "images"
    size = "100GB"
    at = "aws"
    kind = "registry"
    pulled = "50GB"
    [[provider]]
    name = "AWS"
    registry_per_gb_month = 0.3
    egress_per_gb = 0.2
    egress_free_gb_per_month = 10
    [[provider]]
    name = "gcp"
    billing_step = "2h"
    """)
    lines = plan.chosen.cost.breakdown
    # (50 - 10) GB x $0.20
    assert lines.line_usd("transfer") == pytest.approx(8)
    # 100 GB x $0.30 for 3601 s of a month
    assert lines.line_usd("storage") == pytest.approx(30 * 3601 / (30 * 86400))
    # 3601 s are charged as 7200 s at $0.70 an hour
    assert lines.line_usd("billing step") == pytest.approx(0.70 * 3599 / 3600)


def test_today_is_handed_to_the_catalog(monkeypatch):
    asked = []

    def offers(today=""):
        asked.append(today)
        return OFFERS

    monkeypatch.setattr(chosen_from, "bundled_offers", offers)
    plan_workload(parse_workload(SMALL), a_profile(), today="2026-12-24")
    assert asked == ["2026-12-24"]


# --- what is assumed ---


def test_habits_are_the_rows_of_the_assumptions():
    habits = assumed_overheads()
    for name, said in (
        ("provisioning_time_s", habits.provisioning_s),
        ("environment_setup_time_s", habits.environment_s),
        ("warmup_time_s", habits.warmup_s),
        ("data_download_bytes_per_s", habits.download_bytes_per_s),
        ("home_upload_bytes_per_s", habits.upload_bytes_per_s),
        ("spot_requeue_s", habits.requeue_s),
    ):
        assert said.likely == assumptions()[name].number
        assert said.low < said.likely < said.high
    assert habits.checkpoint_interval_s == assumptions()["checkpoint_interval_s"].number


def test_a_plan_says_what_it_assumed():
    said = " ".join(planned("[consider]\nmax_gpus = 1").assumptions)
    assert "No dataset size is given" in said
    # Its one spot offer is of AWS, which publishes rates by type, but none of a "g4".
    rate = assumptions()["spot_interruptions_per_month_aws"].text
    aws = f"of Amazon Web Services without a published rate are interrupted {rate} times a month"
    assert f"{aws} (guess)." in said
    rented = '[[offer]]\nprovider = "acme"\ngpu = "T4"\nspot_per_hour = 1'
    both = " ".join(planned(rented).assumptions)
    assert "Spot machines without a published rate are interrupted 4 times a month (guess)." in both
    assert f"{aws} (guess)." in both
    assert "Several GPUs" not in said
    assert "to set up the environment" not in said
    assert "Several GPUs" in " ".join(planned().assumptions)


def test_a_published_interruption_rate_is_not_said_to_be_assumed(monkeypatch):
    published = an_offer("aws", "g4dn.xlarge", gpu="T4", region="us-east-1", spot_usd=0.2)
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: (published,))
    assert "interrupted" not in " ".join(planned().assumptions)


def test_profile_for_an_unknown_name_is_refused():
    with pytest.raises(NotKnown, match="No profile is known as 'resnet5'") as caught:
        profile_for(Step(profile="resnet5"))
    assert "resnet50" in caught.value.suggestions


def test_profile_for_a_bundled_name():
    assert profile_for(Step(profile="resnet50")).name == "resnet50"


A_QUOTE = """
    [step]
    profile = "resnet50"
    batch_size = 32
    [length]
    samples = 1e7
    {more}
    [consider]
    bundled = false
    [[offer]]
    provider = "acme"
    gpu = "T4"
    {price}
    """


def small_plan(more, price="price_per_hour = 1"):
    return plan_workload(parse_workload(A_QUOTE.format(more=more, price=price)))


@pytest.mark.parametrize("hours", [2, 8])
def test_hours_a_day_with_assumed_set_up(hours):
    # In some draws set-up takes longer than the day: the likely one decides.
    assert small_plan(f"[usage]\nhours_per_day = {hours}").chosen.cost_usd is not None


def test_a_gpu_with_less_memory_than_asked_for_is_ruled_out():
    plan = small_plan('[limits]\ngpu_memory = "40GB"')
    assert plan.chosen is None
    assert plan.options[0].why_not == "its GPU has 16 GiB, less than asked for"


def test_more_interruptions_than_allowed_are_ruled_out():
    spot = "spot_per_hour = 1\ninterruptions_per_month = 100"
    plan = small_plan("[limits]\ninterruptions = 0", spot)
    assert plan.chosen is None
    assert "more than allowed" in plan.options[0].why_not


def test_evaluation_that_is_counted_is_not_said_to_be_missing():
    said = " ".join(small_plan('[evaluation]\nevery = "1h"\ntime = "5m"').assumptions)
    assert "No evaluation" not in said


# --- what can be joined to a machine ---

PODS = (
    an_offer("runpod", "community RTX 4090", gpu="RTX 4090", usd=0.34),
    an_offer("runpod", "secure RTX 4090", gpu="RTX 4090", usd=0.74),
)
NO_VOLUME = (
    "Runpod has no network volumes on such machines: keep the {} on the machine's own disk "
    '(storage = "disk") or elsewhere'
)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ("[data]\nsize = '10 GB'", "dataset"),
        ("[data]\nsize = '10 GB'\nstorage = 'volume'", "dataset"),
        ("[data]\nsize = '10 GB'\nkept_at = 'runpod'", "dataset"),
        ("[[stored]]\nname = 'images'\nsize = '10 GB'", "images"),
        ("[data]\nsize = '1 GB'\n[[stored]]\nname = 'a'\nsize = '1 GB'", "a and the dataset"),
    ],
)
def test_a_community_machine_with_a_network_volume_cannot_be_taken(monkeypatch, data, kept):
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: PODS)
    plan = planned(data)
    community = option_of(plan, "community RTX 4090")
    assert community.blocked == NO_VOLUME.format(kept)
    assert option_of(plan, "secure RTX 4090").blocked is None
    assert plan.chosen.offer.instance == "secure RTX 4090"


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[data]\nsize = '10 GB'\nstorage = 'disk'",
        "[data]\nsize = '10 GB'\nstorage = 'none'",
        "[data]\nsize = '10 GB'\nstorage = 'object'",
        "[data]\nsize = '10 GB'\nkept_at = 'aws'",
        "[checkpoint]\nsize = '1 GB'",
    ],
)
def test_a_community_machine_without_a_network_volume_can(monkeypatch, data):
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: PODS)
    assert option_of(planned(data), "community RTX 4090").blocked is None
