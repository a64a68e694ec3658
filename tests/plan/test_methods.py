"""Methods side by side, and how much a budget pays for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_method_step

from outlay.errors import ExtraMissing, InputError, NotKnown
from outlay.plan import from_measurement, methods
from outlay.plan.affordable import affordable_run
from outlay.plan.methods import compare_methods, saved_usd
from outlay.plan.pipeline import plan_workload
from outlay.plan.question import TrainingQuestion, workload_of_question

TODAY = "2026-11-15"
QUESTION = TrainingQuestion(
    model="llama-3.2-1b", samples=50_000, epochs=3, budget_usd=100, providers=("lambda", "runpod")
)


def planned(workload):
    return plan_workload(workload, today=TODAY)


@pytest.fixture(autouse=True, scope="module")
def stand_ins():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_measurement, "profile_of_model", a_method_step)
        yield


@pytest.fixture(scope="module")
def compared(stand_ins):
    return compare_methods(QUESTION, planned, TODAY)


def test_each_method_has_the_plan_of_its_own_question(compared):
    assert [method.method for method in compared] == ["full", "lora", "qlora"]
    for method in compared:
        alone = planned(workload_of_question(replace(QUESTION, method=method.method)))
        assert method.cheapest.cost_usd == alone.chosen.cost_usd
        assert method.cheapest.offer == alone.chosen.offer
        assert method.gives_up


def test_a_method_saves_what_its_choice_costs_less_on_average(compared):
    full, lora, _ = compared
    expected = full.cheapest.expected_cost_usd - lora.cheapest.expected_cost_usd
    assert saved_usd(compared, lora) == expected
    assert expected > 0
    assert saved_usd(compared, full) == 0


def test_the_smallest_gpu_is_one_that_anybody_could_use(compared):
    for method in compared:
        smallest = method.smallest
        assert smallest.fits
        assert smallest.runs
        assert smallest.for_sale
        for option in method.plan.options:
            if option.fits and option.runs and option.for_sale and option.blocked is None:
                its = option.step.placement
                assert its.gpu_share < 1 or (
                    (smallest.step.placement.site.total, smallest.step.placement.gpu.usable_bytes)
                    <= (its.site.total, its.gpu.usable_bytes)
                )


def test_a_method_that_cannot_be_traced_here_is_told(monkeypatch):
    def without_bitsandbytes(step, selected=0.5, **_):
        if step.method == "qlora":
            raise ExtraMissing("4-bit weights need bitsandbytes.", fix="pip install bitsandbytes")
        return a_method_step(step)

    monkeypatch.setattr(from_measurement, "profile_of_model", without_bitsandbytes)
    *_, last = compare_methods(QUESTION, planned, TODAY)
    assert last.plan is None
    assert last.not_planned == "4-bit weights need bitsandbytes. pip install bitsandbytes"


def test_where_none_can_be_traced_that_is_the_answer(monkeypatch):
    def without_torch(step, selected=0.5, **_):
        raise ExtraMissing("Tracing needs torch.", fix="pip install torch")

    monkeypatch.setattr(from_measurement, "profile_of_model", without_torch)
    with pytest.raises(ExtraMissing, match="needs torch"):
        compare_methods(QUESTION, planned, TODAY)


def test_settings_go_to_the_methods_that_have_them():
    asked = replace(QUESTION, settings={"lora_rank": "8", "clip_norm": "2"})
    by_method = methods._settings_of(asked, ("full", "qlora"))
    assert by_method == {
        "full": {"clip_norm": "2"},
        "qlora": {"lora_rank": "8", "clip_norm": "2"},
    }
    with pytest.raises(NotKnown, match="lora_rnk"):
        methods._settings_of(replace(QUESTION, settings={"lora_rnk": "8"}), ("full", "qlora"))


def test_a_model_of_one_method_has_nothing_to_compare(monkeypatch):
    monkeypatch.setattr(methods, "methods_for", lambda _: ("classify",))
    with pytest.raises(InputError, match="--method classify"):
        compare_methods(QUESTION, planned, TODAY)


# How much a budget pays for

MONEY = replace(QUESTION, method="lora", samples=None, epochs=None, budget_usd=20.0)


def test_a_budget_pays_for_so_many_samples_and_for_few_more():
    run = affordable_run(MONEY, planned, TODAY)
    samples = run.question.samples
    assert run.workload.samples() == samples
    # two figures
    assert float(f"{samples:.2g}") == samples
    chosen = run.plan.chosen
    assert chosen.prospects.within_budget >= 0.8
    more = workload_of_question(replace(run.question, samples=round(samples * 1.2)))
    assert planned(more).chosen is None


def test_a_deadline_limits_it_too():
    free = affordable_run(MONEY, planned, TODAY).question.samples
    soon = affordable_run(replace(MONEY, deadline_s=2 * 3600.0), planned, TODAY)
    assert soon.question.samples < free
    assert soon.plan.chosen.meets_deadline


def test_of_data_that_there_is_a_budget_pays_for_so_many_epochs():
    asked = replace(MONEY, samples=50_000, as_many_epochs=True)
    run = affordable_run(asked, planned, TODAY)
    free = affordable_run(MONEY, planned, TODAY).question.samples
    assert run.question.samples == 50_000
    # the same training, to a tenth of an epoch and two figures
    assert run.question.epochs * 50_000 == pytest.approx(free, rel=0.15)


def test_a_budget_that_pays_for_nothing_says_so():
    run = affordable_run(replace(MONEY, budget_usd=0.001), planned, TODAY)
    assert run.plan.chosen is None
