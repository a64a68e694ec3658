"""`--trust` and `[prefer] trust`: which doubtful prices a plan may choose."""

from __future__ import annotations

import pytest

TWO_PROVIDERS = """
[consider]
gpus = ["RTX 4090:1"]
providers = ["vast", "runpod"]
tenancies = ["on-demand"]
"""


def chosen(document):
    return (document["chosen"]["provider"], document["chosen"]["doubts"])


@pytest.fixture
def planned(outlay, workload):
    """The document of a plan on RTX 4090s of vast (stale, a marketplace) and runpod."""

    def plan(*arguments, prefer=""):
        file = workload(TWO_PROVIDERS + prefer)
        return outlay("plan", file, "--prices", "bundled", *arguments, "--json").document

    return plan


def test_a_doubtful_price_is_chosen_only_where_it_is_trusted(planned):
    usual = planned()
    assert chosen(usual)[0] == "runpod"
    assert usual["prices"]["trust"] == "usual"
    trust = "stale,marketplace"
    document = planned("--trust", trust)
    assert chosen(document) == ("vast", ["stale", "marketplace"])
    assert document["chosen"]["cautions"] == []
    assert document["prices"]["trust"] == trust
    assert any(f"trust is {trust}" in line for line in document["assumptions"])
    everything = planned("--trust", "all")
    assert not any(option["cautions"] for option in everything["options"])
    assert everything["chosen"]["cost_usd"]["likely"] <= document["chosen"]["cost_usd"]["likely"]
    # One of its two doubts is not enough.
    assert chosen(planned("--trust", "stale"))[0] == "runpod"


def test_every_doubt_of_an_option_has_its_reason(planned):
    for option in planned()["options"]:
        assert list(option["doubt_reasons"]) == option["doubts"]
        assert all(reason for reason in option["doubt_reasons"].values())


def test_the_file_may_say_so_and_the_command_line_goes_first(planned):
    prefer = '[prefer]\ntrust = ["stale", "marketplace"]\n'
    assert chosen(planned(prefer=prefer))[0] == "vast"
    assert chosen(planned("--trust", "usual", prefer=prefer))[0] == "runpod"
    trusting = planned(prefer='[prefer]\ntrust = "all"\n')
    assert trusting["prices"]["trust"] == "all"
    assert set(chosen(trusting)[1]) & {"low stock", "stale", "superseded", "marketplace"}


def test_the_explanation_says_what_each_doubt_means(outlay, workload):
    file = workload(TWO_PROVIDERS)
    shown = outlay("plan", file, "--prices", "bundled", "--explain", "vast").out
    lines = " ".join(shown.split())
    assert "What is doubtful about its price" in lines
    assert "marketplace keeps it from being chosen Middle of many hosts' prices" in lines


def test_two_plans_may_be_compared_at_one_trust(outlay, workload):
    file = workload(TWO_PROVIDERS)
    arguments = ("diff", file, file, "--prices", "bundled", "--json")
    assert outlay(*arguments).document["after"]["provider"] == "runpod"
    trusting = outlay(*arguments, "--trust", "stale,marketplace").document
    assert trusting["after"]["provider"] == "vast"


def test_advice_takes_trust(outlay):
    ended = outlay("advise", "--ask", "share", "--trust", "strict", "--prices", "bundled")
    assert ended.code == 0
    assert outlay("advise", "--ask", "share", "--trust", "nonsense").code == 2


def test_offers_lists_what_is_trusted(outlay):
    def listed(*arguments):
        ended = outlay("offers", "--gpu", "RTX 4090", "--prices", "bundled", *arguments, "--json")
        return ended.document["offers"]

    everything, usual, strict = listed(), listed("--trust", "usual"), listed("--trust", "strict")
    assert len(everything) > len(usual) >= len(strict) > 0
    assert any(offer["cautions"] for offer in everything)
    assert not any("stale" in offer["doubts"] for offer in usual)
    trusted = listed("--trust", "stale,marketplace")
    assert any("stale" in offer["doubts"] for offer in trusted)
    assert not any("stale" in offer["cautions"] for offer in trusted)


@pytest.mark.parametrize(
    ("trust", "said"),
    [
        ("stal", "Did you mean"),
        ("withdrawn", "'withdrawn' is no matter of trust"),
        ("strict,all", "Prices cannot be trusted in two ways"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "offers"])
def test_what_is_no_trust_is_refused(outlay, workload, command, trust, said):
    file = [workload(TWO_PROVIDERS)] if command == "plan" else []
    ended = outlay(command, *file, "--trust", trust)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_file_with_nonsense_for_trust_is_refused(outlay, workload):
    ended = outlay("plan", workload("[prefer]\ntrust = 3\n"))
    assert ended.code == 2
    assert "trust" in ended.err
    ended = outlay("plan", workload('[prefer]\ntrust = "stal"\n'))
    assert ended.code == 2
    assert "No doubt is known as 'stal'" in ended.err
