"""`outlay plan`: the documented keys, the arithmetic of the bill, the limits and the exit codes."""

from __future__ import annotations

from numbers import Real

import jsonschema
import pytest

OWN_ONLY = "[consider]\nbundled = false\n"
THAT_DAY = "1793491200"
"""2026-11-01 in seconds: the day the first quote is of."""
TWO_T4 = f"""{OWN_ONLY}
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 2.00
as_of = 2026-11-01
[[offer]]
provider = "south"
gpu = "T4"
price_per_hour = 3.00
spot_per_hour = 1.00
"""
KEYS = {
    "rank": int,
    "provider": str,
    "instance": str,
    "gpu": str,
    "gpus": int,
    "tenancy": str,
    "region": str,
    "price_usd_per_hour": Real,
    "price_as_of": str,
    "batch_size": int,
    "step_time_s": dict,
    "run_time_s": dict,
    "cost_usd": dict,
    "expected_cost_usd": Real,
    "trouble_usd": Real,
    "lines": list,
    "usd_per_million_samples": Real,
    "global_batch_size": int,
    "fits": bool,
    "within_budget": bool,
    "meets_deadline": bool,
    "on_frontier": bool,
}
ESTIMATES = ("step_time_s", "run_time_s", "cost_usd")


@pytest.fixture
def planned(outlay, workload):
    """The document of a plan over bundled offers of two providers."""
    path = workload('[consider]\nproviders = ["lambda", "runpod"]', length="samples = 2_000_000")
    ended = outlay("plan", path, "--json")
    assert (ended.code, ended.err) == (0, "")
    return ended.document


def sound_costs_usd(document):
    """Costs of the options that may be chosen, in rank order."""
    spoiled = ("doubtful", "not for sale", "does not fit")
    return [
        option["cost_usd"]["likely"]
        for option in document["options"]
        if not (option["why_not"] or "").startswith(spoiled)
    ]


def test_document_validates_against_its_schema(outlay, planned):
    jsonschema.validate(planned, outlay("schema", "plan").document)


def test_document_has_the_contract_s_keys(planned):
    assert planned["schema"] == 1
    assert isinstance(planned["break_even"], dict)
    assert planned["options"]
    for option in planned["options"]:
        for key, kind in KEYS.items():
            assert isinstance(option[key], kind), key
            assert kind is bool or not isinstance(option[key], bool), key
        assert option["why_not"] is None or isinstance(option["why_not"], str)
        assert option["tenancy"] in ("on-demand", "spot", "reserved", "owned")


def test_estimates_are_ordered(planned):
    for option in planned["options"]:
        for key in ESTIMATES:
            estimate = option[key]
            assert set(estimate) == {"low", "likely", "high"}
            assert 0 < estimate["low"] <= estimate["likely"] <= estimate["high"]


def test_lines_sum_to_the_likely_cost(planned):
    for option in planned["options"]:
        total = sum(line["usd"] for line in option["lines"])
        assert total == pytest.approx(option["cost_usd"]["likely"], abs=1e-6)


def test_ranks_count_from_one(planned):
    ranks = [option["rank"] for option in planned["options"]]
    assert ranks == sorted(set(ranks))
    assert ranks[:50] == list(range(1, 51))
    assert ranks[-1] <= planned["options_total"]


def test_chosen_is_one_of_the_options_and_the_only_one_without_a_reason_against_it(planned):
    chosen = planned["chosen"]
    assert chosen in planned["options"]
    assert [one for one in planned["options"] if one["why_not"] is None] == [chosen]
    assert chosen["on_frontier"]


def test_chosen_is_the_cheapest_without_a_doubt(planned):
    costs = sound_costs_usd(planned)
    assert len(costs) > 1
    assert planned["chosen"]["cost_usd"]["likely"] == min(costs)


def test_global_batch_is_the_batch_of_every_gpu(planned):
    for option in planned["options"]:
        assert option["global_batch_size"] == option["batch_size"] * option["gpus"]


def test_usd_per_million_samples_is_the_cost_by_the_samples(planned):
    for option in planned["options"]:
        # 2,000,000 samples: half the cost a million.
        half = option["cost_usd"]["likely"] / 2
        assert option["usd_per_million_samples"] == pytest.approx(half)


def test_cost_is_hours_times_price(outlay, workload, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", THAT_DAY)
    options = outlay("plan", workload(TWO_T4), "--json").document["options"]
    north = next(one for one in options if one["provider"] == "north")
    # 6 h of training at $2.00 and half an hour of set-up at $2.00.
    assert {line["name"]: line["usd"] for line in north["lines"]} == {
        "compute": pytest.approx(12.0),
        "set-up": pytest.approx(1.0),
    }
    assert north["cost_usd"] == pytest.approx({"low": 13.0, "likely": 13.0, "high": 13.0})
    # 6.5 h = 23,400 s
    assert north["run_time_s"]["likely"] == pytest.approx(23_400)
    assert north["price_as_of"] == "2026-11-01"


def test_each_tenancy_is_an_option_at_its_own_price(outlay, workload):
    options = outlay("plan", workload(TWO_T4), "--json").document["options"]
    prices = {(one["provider"], one["tenancy"]): one["price_usd_per_hour"] for one in options}
    assert prices == {
        ("north", "on-demand"): 2.0,
        ("south", "on-demand"): 3.0,
        ("south", "spot"): 1.0,
    }


def test_own_machine_is_charged_its_electricity_alone(outlay, workload):
    machine = """
    [[machine]]
    name = "desktop"
    gpu = "T4"
    host_watts = 130
    electricity_per_kwh = 0.50
    """
    chosen = outlay("plan", workload(OWN_ONLY + machine), "--json").document["chosen"]
    # 6.5 h x (70 W T4 + 130 W) = 1.3 kWh at $0.50
    assert chosen["tenancy"] == "owned"
    assert [line["name"] for line in chosen["lines"]] == ["electricity"]
    assert chosen["cost_usd"]["likely"] == pytest.approx(0.65)
    assert chosen["price_usd_per_hour"] is None


def test_equal_work_is_ranked_by_cost(outlay, workload):
    path = workload('[consider]\nproviders = ["lambda"]', length="samples = 1_000_000")
    document = outlay("plan", path, "--json").document
    costs = sound_costs_usd(document)
    assert document["ranked_by"] == "cost"
    assert len(costs) > 1
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("limits", "offer", "flag", "reason"),
    [
        ("budget = 12.99", "", "within_budget", "over budget"),
        ('deadline = "6h29m"', "", "meets_deadline", "misses the deadline"),
        ("budget = 1e9", 'gpu = "K520"', "fits", "does not fit"),
    ],
)
def test_nothing_satisfies_the_limits(outlay, workload, limits, offer, flag, reason):
    # 13 dollars and 6.5 h on a T4; a K520 has 4 GiB, and 256 images of ResNet-50 need 11 and more.
    gpu = offer or 'gpu = "T4"'
    step = 'profile = "resnet50"\nbatch_size = 256' if offer else ""
    more = f"""
    {OWN_ONLY}
    [limits]
    {limits}
    [[offer]]
    provider = "north"
    {gpu}
    price_per_hour = 2.00
    """
    path = workload(more, step=step)
    ended = outlay("plan", path, "--json")
    assert ended.code == 3
    assert ended.err == ""
    assert ended.document["chosen"] is None
    (option,) = ended.document["options"]
    assert option[flag] is False
    assert option["why_not"].startswith(reason)
    shown = outlay("plan", path)
    assert shown.code == 3
    assert "No option satisfies the limits." in shown.out


@pytest.mark.parametrize("limits", ["budget = 13.01", 'deadline = "6h31m"'])
def test_a_limit_just_kept(outlay, workload, limits, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", THAT_DAY)
    path = workload(TWO_T4.replace("spot_per_hour = 1.00", "") + f"[limits]\n{limits}\n")
    ended = outlay("plan", path, "--json")
    assert ended.code == 0
    assert ended.document["chosen"]["provider"] == "north"


def test_offer_without_a_price_is_listed_without_a_cost(outlay, workload):
    unpriced = '[[offer]]\nprovider = "west"\ngpu = "T4"\n'
    path = workload(TWO_T4 + unpriced)
    option = outlay("plan", path, "--json").document["options"][-1]
    assert option["provider"] == "west"
    assert option["cost_usd"] is None
    assert option["price_usd_per_hour"] is None
    assert option["lines"] == []
    assert option["why_not"].startswith("no price known")
    assert "west" in outlay("plan", path, "--full").out.split("No price known")[1]
    assert "1x T4 (quote 3) at west: no price known" in outlay("plan", path).out


def test_storage_without_a_price_is_named_and_not_counted_as_zero(outlay, workload):
    data = '[data]\nsize = "10GB"\npreparation = "1m"\n'
    path = workload(TWO_T4 + data)
    option = outlay("plan", path, "--json").document["chosen"]
    assert "storage" not in [line["name"] for line in option["lines"]]
    assert any("no price known" in missing for missing in option["not_priced"])
    assert "Not in the bill, as no price is known: " in " ".join(outlay("plan", path).out.split())


def test_the_answer_and_what_it_rests_on_are_five_lines_before_the_table(
    outlay, workload, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", THAT_DAY)
    ended = outlay("plan", workload(TWO_T4.replace("spot_per_hour = 1.00", "")))
    assert ended.code == 0
    assert ended.err == ""
    _, take, hours, spent, instead, grounds, blank, title, *_ = ended.out.splitlines()
    # 6.5 h x $2.00
    assert take == "Take: 1x T4 at north (quote 1), on-demand: $13.00, 6.5 h."
    assert hours == (
        "Hours are read as hours: 6 h on any machine, the cheapest first. "
        "By the training done in them: hours_are_equal = false."
    )
    # 6 h x $2.00 and half an hour; 6 / 6.5 = 92 %
    assert spent == "Mostly compute $12.00, set-up $1.00; 92 % of the time is training."
    # 6.5 h x $3.00
    assert instead == "Next best: 1x T4 at south (quote 2) on-demand, $19.50 in 6.5 h."
    assert grounds == "Rests on: Price quoted to you, taken as today's."
    assert blank == ""
    assert title.startswith("Best 2 of 2")
    assert "CHOSEN" in ended.out


def test_best_limits_the_rows(outlay, workload):
    path = workload('[consider]\nproviders = ["lambda", "runpod"]')
    few = outlay("plan", path, "--best", 2).out
    many = outlay("plan", path, "--best", 20).out
    assert "Best 2 of " in few
    assert "Best 20 of " in many
    assert len(many.splitlines()) - len(few.splitlines()) == 18


def test_profile_is_found_beside_the_workload_file(outlay, workload, tmp_path, monkeypatch):
    import gzip

    from outlay.facts import DATA

    packed = (DATA / "profiles" / "resnet50.json.gz").read_bytes()
    (tmp_path / "mine.json").write_bytes(gzip.decompress(packed))
    monkeypatch.chdir("/")
    path = workload(TWO_T4, step='profile = "mine.json"\nbatch_size = 8')
    ended = outlay("plan", path, "--json")
    assert ended.code == 0
    assert ended.document["chosen"]["batch_size"] == 8


def test_real_program_prints_json_alone(program, workload):
    workload('[consider]\nproviders = ["lambda"]')
    ended = program("plan", "work.toml", "--json")
    assert ended.code == 0
    assert ended.err == ""
    assert ended.document["chosen"]["provider"] == "lambda"


def test_real_program_ends_with_3_over_budget(program, workload):
    workload('[consider]\nproviders = ["lambda"]\n[limits]\nbudget = 0.001')
    ended = program("plan", "work.toml", "--json")
    assert ended.code == 3
    assert ended.err == ""
    assert ended.document["chosen"] is None


def test_same_question_same_answer(program, workload):
    workload('[consider]\nproviders = ["runpod"]')
    day = {"SOURCE_DATE_EPOCH": "1800000000"}
    first = program("plan", "work.toml", "--json", PYTHONHASHSEED="1", **day)
    second = program("plan", "work.toml", "--json", PYTHONHASHSEED="2", **day)
    assert first == second


def test_sources_name_the_price_and_the_gpu_facts(outlay, root):
    shown = outlay("plan", root / "examples" / "stylenat.toml", "--sources").out
    said = shown[shown.index("Where these figures come from") :]
    for word in ("price", "memory_bandwidth", "peak_fp32", "calibration.csv", "assumptions.csv"):
        assert word in said


# --- what the choice rests on ---


def test_the_first_screen_says_what_the_choice_rests_on(outlay, workload, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795046400")  # 2026-11-19
    path = workload(
        '[consider]\nproviders = ["aws"]\ngpus = ["T4"]\ntenancies = ["on-demand"]',
        length='time = "6h"\nhours_are_equal = false',
    )
    document = outlay("plan", path, "--json").document
    price, speed, quota, *_ = document["rests_on"]
    assert price.startswith(f"Price seen {document['chosen']['price_as_of']}, ")
    assert " days ago" in price
    assert speed == "Speed predicted, not measured on T4."
    assert quota == "Quota: a new account at aws has to ask for GPUs first."
    screen, _, _ = outlay("plan", path).out.partition("\n\n")
    assert f"Rests on: {' '.join(document['rests_on'])}" in " ".join(screen.split())


def test_the_same_file_is_older_a_year_later(outlay, workload, monkeypatch):
    path, ages = workload('[consider]\nproviders = ["lambda"]\ngpus = ["A10"]'), []
    for epoch in ("1795046400", str(1795046400 + 365 * 86400)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        price = outlay("plan", path, "--json").document["rests_on"][0]
        ages.append(int(price.split(", ")[1].split()[0]))
    assert ages[1] - ages[0] == 365


def test_a_plan_without_a_choice_rests_on_nothing(outlay, workload):
    path = workload(TWO_T4 + "[limits]\nbudget = 0.01\n")
    ended = outlay("plan", path, "--json")
    assert ended.code == 3
    assert ended.document["rests_on"] == []
    assert "Rests on" not in outlay("plan", path).out


# --- how large a batch is taken ---

STYLENAT = '[consider]\ngpus = ["A100-80GB:1..8"]\nproviders = ["lambda"]\n'


def stylenat(outlay, workload, step=""):
    """Options of StyleNAT on A100s of 80 GB, which hold three times the published batch."""
    path = workload(STYLENAT, step=f'profile = "stylenat"\n{step}', length="samples = 8_000_000")
    return outlay("plan", path, "--json").document


def test_a_bundled_step_is_not_trained_at_a_larger_batch_than_published(outlay, workload):
    document = stylenat(outlay, workload)
    assert document["options"]
    for option in document["options"]:
        # 8 per GPU is published; the work is the same, whatever the batch
        assert option["batch_size"] == 8 < option["max_batch_size"]
        assert option["global_batch_size"] == 8 * option["gpus"]
        assert option["samples"] == 8_000_000
    assert "as published (StyleNAT's configuration)" in document["rests_on"][-1]


def test_who_wants_the_gpu_full_says_so_and_is_told_how_far_that_is(outlay, workload):
    document = stylenat(outlay, workload, 'batch_size = "max"')
    chosen = document["chosen"]
    assert chosen["batch_size"] == chosen["max_batch_size"] > 8
    told = document["rests_on"][-1]
    assert f"Batch {chosen['batch_size']}" in told
    assert f"{chosen['batch_size'] / 8:.2g}x the published 8 per GPU" in told
    assert "step.max_batch_size" in told


@pytest.mark.parametrize("step", ["", 'batch_size = "max"\n'])
def test_step_max_batch_size_holds_the_largest_that_fits(outlay, workload, step):
    document = stylenat(outlay, workload, f"{step}max_batch_size = 12")
    assert {option["batch_size"] for option in document["options"]} == {12}


def test_predict_still_finds_the_largest_batch_of_a_bundled_step(outlay):
    (found,) = outlay("predict", "stylenat", "--gpu", "H200", "--json").document["predictions"]
    assert found["batch_size"] == found["max_batch_size"] > 8


# --- whose prices ---


def test_prices_bundled_is_what_a_plan_takes_anyway(outlay, workload):
    path = workload('[consider]\nproviders = ["lambda"]\ngpus = ["A10"]')
    assert outlay("plan", path, "--prices", "bundled").out == outlay("plan", path).out


def test_prices_of_nobody_are_bad_usage(outlay, workload):
    ended = outlay("plan", workload(), "--prices", "live")
    assert ended.code == 2
    assert "'live' is not one of 'newest', 'bundled'" in ended.err
    assert ended.out == ""


# --- expected cost, ties, conditions, the nearest ---


def test_sound_options_are_in_the_order_of_their_expected_cost(planned):
    spoiled = ("doubtful", "not for sale", "does not fit", "today's PyTorch")
    expected = [
        option["expected_cost_usd"]
        for option in planned["options"]
        if option["cost_usd"] and not option["not_priced"] and option["tenancy"] != "spot"
        if not (option["why_not"] or "").startswith(spoiled)
    ]
    assert len(expected) > 10
    assert expected == sorted(expected)
    assert planned["risk"] == "expected"
    chosen = planned["chosen"]
    assert chosen["rank"] in planned["tie"]
    assert planned["tie"] == sorted(set(planned["tie"]))
    assert planned["nearest"] is None


TIE = f"""{OWN_ONLY}
[prefer]
per_start = 0.5
per_interruption = 0
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 2.04
[[offer]]
provider = "south"
gpu = "T4"
spot_per_hour = 2.00
interruptions_per_month = 0
"""


def test_the_choice_of_a_tie_is_told_though_it_is_not_among_the_options_asked_for(outlay, workload):
    ended = outlay("plan", workload(TIE, length="time = '100h'"), "--json", "--max-options", "1")
    document = ended.document
    # $4 and half a dollar of some $204 apart: the same, and on demand is less trouble
    assert document["tie"] == [1, 2]
    assert [option["tenancy"] for option in document["options"]] == ["spot"]
    assert document["options"][0]["trouble_usd"] == 0.5
    assert document["chosen"]["tenancy"] == "on-demand"
    assert document["chosen"]["rank"] == 2
    assert "a tie" in document["options"][0]["why_not"]


def test_the_nearest_to_the_limits_is_told(outlay, workload):
    ended = outlay("plan", workload(f"{TWO_T4}\n[limits]\nbudget = 0.01\n"), "--json")
    assert ended.code == 3
    document = ended.document
    assert (document["chosen"], document["tie"]) == (None, [])
    nearest = document["options"][document["nearest"] - 1]
    costs = [option["cost_usd"]["likely"] for option in document["options"]]
    assert nearest["cost_usd"]["likely"] == min(costs)
    assert nearest["why_not"].startswith("over budget")


# --- a length in hours: an hour is an hour, unless the file says that its work counts ---

SLOW_AND_FAST = f"""{OWN_ONLY}
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 0.20
[[offer]]
provider = "south"
gpu = "H100 SXM"
price_per_hour = 1.00
"""
BY_WORK = 'time = "40h"\nhours_are_equal = false'


def test_forty_hours_are_those_that_cost_least(outlay, workload):
    document = outlay("plan", workload(SLOW_AND_FAST, length='time = "40h"'), "--json").document
    assert document["hours_are_equal"] is True
    assert document["ranked_by"] == "cost"
    assert document["chosen"]["gpu"] == "T4"
    # 40 h and half an hour of set-up, x $0.20
    assert document["chosen"]["cost_usd"]["likely"] == pytest.approx(40.5 * 0.20)


def test_hours_count_by_their_work_where_the_file_says_so(outlay, workload):
    document = outlay("plan", workload(SLOW_AND_FAST, length=BY_WORK), "--json").document
    assert document["hours_are_equal"] is False
    assert document["ranked_by"] == "training cost per million samples"
    # an H100 has 15 times a T4's 65 TFLOP/s and 10 times its 320 GB/s, for 5 times the price
    assert document["chosen"]["gpu"] == "H100 SXM"
    t4, h100 = sorted(document["options"], key=lambda option: option["cost_usd"]["likely"])
    assert h100["usd_per_million_samples"] < t4["usd_per_million_samples"]


def test_other_lengths_have_no_hours_to_read(planned):
    assert planned["hours_are_equal"] is None


@pytest.mark.parametrize(
    ("length", "read", "other"),
    [
        (
            'time = "40h"',
            "Hours are read as hours: 40 h on any machine",
            "By the training done in them: hours_are_equal = false (1x H100 SXM at south (quote 2)",
        ),
        (
            BY_WORK,
            "Hours are read as work: the training done in 40 h",
            # 40.5 h x $0.20
            "By the hour: hours_are_equal = true (1x T4 at north (quote 1) on-demand, $8.10",
        ),
    ],
)
def test_the_answer_says_how_hours_are_read_and_what_is_best_otherwise(
    outlay, workload, length, read, other
):
    out = outlay("plan", workload(SLOW_AND_FAST, length=length)).out
    words = " ".join(out.split("Best 2 of")[0].split())
    assert read in words
    assert other in words


def test_an_hour_of_a_share_of_a_gpu_is_no_hour_of_a_gpu(outlay, workload):
    path = workload('[consider]\ninstances = ["g6f.large", "g6.xlarge"]', length='time = "6h"')
    document = outlay("plan", path, "--prices", "bundled", "--json").document
    reasons = {
        option["why_not"] for option in document["options"] if option["instance"] == "g6f.large"
    }
    assert reasons == {"its hours are of 0.125 of a GPU, not of a whole one"}
    assert document["chosen"]["instance"] == "g6.xlarge"


def test_json_has_the_options_worth_reading_and_all_on_request(outlay, workload, planned):
    path = workload('[consider]\nproviders = ["lambda", "runpod", "aws"]')
    short = outlay("plan", path, "--json").document
    every = outlay("plan", path, "--json", "--all").document
    whole = every["options"]
    assert [one["rank"] for one in whole] == list(range(1, every["options_total"] + 1))
    assert short["options_total"] == every["options_total"] == len(whole) > 100
    kept = {one["rank"]: one for one in short["options"]}
    assert len(kept) < len(whole)
    first: dict[tuple[str, ...], int] = {}
    for one in whole:
        first.setdefault((one["provider"], one["gpu"], one["tenancy"]), one["rank"])
    wanted = {*range(1, 51), *short["tie"], *first.values(), short["chosen"]["rank"]}
    wanted |= {one["rank"] for one in whole if one["on_frontier"]}
    named = {short["trial"][key] for key in ("first", "second")} if short["trial"] else set()
    named |= {one["cheaper_then"] for one in short["explained"]["inputs"]} - {None}
    assert set(kept) == wanted | named
    assert all(kept[one["rank"]] == one for one in whole if one["rank"] in kept)
    without = ("options", "options_total")
    assert {key: short[key] for key in short if key not in without} == {
        key: every[key] for key in every if key not in without
    }


def test_an_explained_option_is_in_the_json_whatever_its_rank(outlay, workload):
    path = workload('[consider]\nproviders = ["lambda", "runpod", "aws"]')
    last = outlay("plan", path, "--json").document["options_total"]
    document = outlay("plan", path, "--json", "--explain", last).document
    assert document["explained"]["rank"] == document["options"][-1]["rank"] == last


def test_all_and_a_number_of_options_exclude_each_other(outlay, workload):
    ended = outlay("plan", workload(TWO_T4), "--json", "--all", "--max-options", "3")
    assert ended.code == 2
    assert "--all and --max-options" in ended.err
