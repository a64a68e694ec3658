"""The methods a model can be trained by, side by side: what each needs, costs, and gives up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from outlay.errors import ExtraMissing, InputError, OutlayError, TraceFailed
from outlay.models.model import find_model
from outlay.models.recipe import SettingValue, find_recipe, methods_for
from outlay.plan.affordable import Planned, affordable_run
from outlay.plan.option import Option
from outlay.plan.question import AnsweredQuestion, TrainingQuestion, answer, workload_of_question
from outlay.plan.ranking import Plan
from outlay.workload.workload import Workload

COMPARED = ("full", "lora", "qlora")
"""The methods that answer the same question of a model: they differ in what is trained."""
GIVES_UP: Mapping[str, str] = {
    "full": "Nothing: every weight is trained.",
    "lora": (
        "Only small matrices beside the weights are trained: as good on style and format, behind "
        "on much new knowledge or code."
    ),
    "qlora": "As LoRA, and the weights it starts from are rounded to 4 bits: a little worse.",
}
# Source: Biderman et al. 2024, arXiv 2405.09673 (LoRA learns less and forgets less); Dettmers et
# al. 2023, arXiv 2305.14314 (QLoRA: 4-bit base, unpacked for every product; what that costs in time
# is in each method's prediction).


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """One method of a model: its plan, or why there is none."""

    method: str
    answered: AnsweredQuestion | None = None
    workload: Workload | None = None
    plan: Plan | None = None
    not_planned: str = ""
    """Why it has no plan: what its step would need to be traced."""

    @property
    def cheapest(self) -> Option | None:
        """The choice; None where nothing satisfies the limits."""
        return None if self.plan is None else self.plan.chosen

    @property
    def smallest(self) -> Option | None:
        """On the smallest GPU that it fits on, by itself; on several where it fits on none.

        Of GPUs that today's PyTorch runs on, and that somebody sells as a whole.
        """
        options = () if self.plan is None else self.plan.options
        whole = [option for option in options if _is_for_everyone(option)]
        return min(whole, key=_memory_of, default=None)

    @property
    def gives_up(self) -> str:
        """What one gets less of than with the others, in a sentence."""
        return GIVES_UP.get(self.method, "")


def _is_for_everyone(option: Option) -> bool:
    works = option.fits and option.blocked is None and option.runs and option.for_sale
    return works and option.step.placement.gpu_share == 1


def _memory_of(option: Option) -> tuple[int, float, float]:
    """What an option's GPUs have: fewest first, the smallest of them, the cheapest of those."""
    placement = option.step.placement
    return placement.site.total, placement.gpu.usable_bytes, option.usd


def compared_methods(question: TrainingQuestion) -> tuple[str, ...]:
    """The methods of a model that can be compared."""
    model = find_model(question.model, trust_remote_code=question.trust_remote_code)
    known = methods_for(model)
    compared = tuple(method for method in COMPARED if method in known)
    if len(compared) < 2:
        raise InputError(
            f"{model.title} has no methods to compare.",
            why=f"It is a model for {model.task}, trained by {', '.join(known)}.",
            fix=f"Name one: --method {known[0]}.",
        )
    return compared


def compare_methods(
    question: TrainingQuestion, planned: Planned, today: str = ""
) -> tuple[MethodPlan, ...]:
    """Each method's plan for the same question; of a budget alone, of what it pays for.

    planned: the plan of a workload, with the prices and measurements at hand. A method whose step
    cannot be traced here is told, too.
    """
    return tuple(_each(question, compared_methods(question), planned, today))


def _each(
    question: TrainingQuestion, methods: Sequence[str], planned: Planned, today: str
) -> Iterator[MethodPlan]:
    failures: list[OutlayError] = []
    for method, settings in _settings_of(question, methods).items():
        asked = replace(question, method=method, settings=settings)
        try:
            yield _method_plan(asked, method, planned, today)
        except (ExtraMissing, TraceFailed) as error:
            failures.append(error)
            if len(failures) == len(methods):
                raise
            yield MethodPlan(method=method, not_planned=f"{error.what} {error.fix}".strip())


def _settings_of(
    question: TrainingQuestion, methods: Sequence[str]
) -> dict[str, dict[str, SettingValue]]:
    """The settings of each method: those it has; one that none has is an error."""
    recipes = {method: find_recipe(method) for method in methods}
    names = {method: {one.name for one in recipe.constants} for method, recipe in recipes.items()}
    for name in question.settings:
        if not any(name in known for known in names.values()):
            recipes[methods[-1]].constant(name)  # raises, and names those there are
    return {
        method: {name: value for name, value in question.settings.items() if name in known}
        for method, known in names.items()
    }


def _method_plan(asked: TrainingQuestion, method: str, planned: Planned, today: str) -> MethodPlan:
    if asked.is_about_money:
        run = affordable_run(asked, planned, today)
        found, workload, plan = run.question, run.workload, run.plan
    else:
        found, workload = asked, workload_of_question(asked)
        plan = planned(workload)
    return MethodPlan(method=method, answered=answer(found), workload=workload, plan=plan)


def saved_usd(methods: Sequence[MethodPlan], method: MethodPlan) -> float | None:
    """What a method's choice costs less than the first method's, on average; None where either has
    none, or where they train unequal amounts."""
    first, other = methods[0].cheapest, method.cheapest
    if first is None or other is None or first.samples != other.samples:
        return None
    if first.expected_cost_usd is None or other.expected_cost_usd is None:
        return None
    return first.expected_cost_usd - other.expected_cost_usd
