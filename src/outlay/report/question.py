"""A question about a model, and its methods side by side, in words, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from outlay.plan.methods import MethodPlan, saved_usd
from outlay.plan.option import Option
from outlay.plan.question import ONE_PASS, AnsweredQuestion, TrainingQuestion
from outlay.report.console import INDENT, Page, bullets, table
from outlay.report.documents import (
    Document,
    PlanDocument,
    plan_document,
)
from outlay.report.plan import machine_of, place_of, price_age
from outlay.report.rests_on import rests_on
from outlay.report.text import UNKNOWN, count, duration, gib, magnitude, usd, usd_range
from outlay.uncertainty import Estimate


def print_question(
    page: Page,
    answered: AnsweredQuestion,
    notes: Sequence[str] = (),
    *,
    is_found: bool = False,
) -> None:
    """Print what is asked, and what was decided, one line each.

    notes: what was decided of the step itself. is_found: whether the amount was not given, but is
    what the budget pays.
    """
    words = amount_words(answered)
    asked = " ".join(part for part in (answered.name, answered.method) if part)
    question = answered.question
    if is_found and question.budget_usd is not None:
        page.print(Text(f"For {usd(question.budget_usd)}: {asked}, {words}.", style="bold"))
    else:
        page.print(Text(f"{asked}, {words}." if words else f"{asked}.", style="bold"))
    lines = [*answered.defaults, *notes]
    if is_found and answered.epochs == 1 and answered.samples is not None:
        lines = [line for line in lines if line != ONE_PASS]
        each = round(answered.samples / 3, -2 if answered.samples > 3000 else 0)
        lines.insert(
            0, f"That is one pass over {count(answered.samples)} samples, or 3 over {count(each)}."
        )
    if lines:
        page.print(bullets(lines))
    page.print()


def amount_words(answered: AnsweredQuestion) -> str:
    """`3 epochs of 50,000 samples x 1,024 tokens: 154 M tokens`."""
    question, samples = answered.question, answered.samples
    if question.steps is not None:
        return f"{question.steps:,} steps"
    if question.training_s is not None:
        return f"{duration(question.training_s)} of training"
    if samples is None:
        return ""
    each = f" x {answered.tokens:,} tokens" if answered.tokens else ""
    text = f"{count(samples)} {'sequences' if question.packing else 'samples'}{each}"
    if answered.epochs != 1:
        text = f"{answered.epochs:g} epochs of {text}"
    return f"{text}: {magnitude(answered.seen_tokens)} tokens" if answered.seen_tokens else text


# Methods side by side


def print_methods(page: Page, question: TrainingQuestion, methods: Sequence[MethodPlan]) -> None:
    """Print every method in a row, what each gives up, and what was decided."""
    first = next(method.answered for method in methods if method.answered)
    differs = question.is_about_money
    words = "" if differs else f", {amount_words(first)}"
    limits = [
        f"budget {usd(question.budget_usd)}" if question.budget_usd is not None else "",
        f"within {duration(question.deadline_s)}" if question.deadline_s is not None else "",
    ]
    asked = ", ".join([f"{first.name}{words}", *(limit for limit in limits if limit)])
    page.print(Text(f"{asked}.", style="bold"))
    for line in _methods_words(methods, differs=differs):
        page.print(line)
    page.print(bullets(_shared_defaults(methods)))
    heads = [
        "method", *(["samples"] if differs else []), "batch", "memory", "fits from", "cheapest",
        "tenancy", "time", "cost", "range", *([] if differs else ["saves"]),
    ]  # fmt: skip
    rows = [_row(methods, method, differs=differs)[: len(heads)] for method in methods]
    right = ("samples", "batch", "memory", "time", "cost", "saves")
    page.print_section(
        "Methods", table(heads, rows, page.width - INDENT, right=right, wrap="cheapest")
    )
    page.print_section("What each gives up", bullets(_gives_up(methods), style="none"))
    page.print()
    page.print(
        Text(
            "Cost is the mean of simulated bills; memory what each GPU of the cheapest reserves, "
            "batch its samples. One method in full: --method NAME."
        )
    )


def _methods_words(methods: Sequence[MethodPlan], *, differs: bool) -> Iterator[Text]:
    """The method whose choice costs least, what that saves, and what its figures rest on."""
    best = _most(methods) if differs else cheapest_method(methods)
    if best is None or best.cheapest is None or best.plan is None:
        yield Text("No method satisfies the limits.", style="bold red")
        return
    option, saves = best.cheapest, saved_usd(methods, best)
    amount = "most for the money" if differs else "cheapest"
    text = Text(f"{best.method}, the {amount}: ", style="bold green")
    text.append(
        f"{machine_of(option)} at {place_of(option)}, {option.tenancy}: "
        f"{usd(option.expected_cost_usd)} on average, {duration(option.busy_s)}",
        style="none",
    )
    if not differs and saves is not None and saves > 0:
        text.append(f"; saves {_saved(saves, methods[0])} against {methods[0].method}", "none")
    yield text.append(".", "none")
    yield from map(Text, price_age(best.plan))
    sentences = rests_on(best.plan)
    if sentences:
        yield Text.assemble(("Rests on: ", "bold"), " ".join(sentences))


def cheapest_method(methods: Sequence[MethodPlan]) -> MethodPlan | None:
    """The method whose choice costs least on average; None where none has one."""
    chosen = [method for method in methods if method.cheapest is not None]
    return min(chosen, key=_expected_usd, default=None)


def _most(methods: Sequence[MethodPlan]) -> MethodPlan | None:
    """The method that trains on most samples; of equal ones the first."""
    chosen = [method for method in methods if method.cheapest is not None]
    return max(chosen, key=_seen, default=None)


def _seen(method: MethodPlan) -> float:
    assert method.answered is not None
    return method.answered.seen_samples or 0.0


def _shared_defaults(methods: Sequence[MethodPlan]) -> list[str]:
    """What was decided for every method, and the recipes."""
    lines: dict[str, None] = {}
    for method in methods:
        if method.answered is not None:
            lines |= dict.fromkeys(method.answered.defaults)
    return sorted(lines, key=lambda line: line.startswith("Recipe "))  # what all share goes first


def _row(methods: Sequence[MethodPlan], method: MethodPlan, *, differs: bool) -> tuple[str, ...]:
    option = method.cheapest or (None if method.plan is None else method.plan.nearest)
    answered = method.answered
    samples = (count(answered.seen_samples if answered else None),) if differs else ()
    if method.plan is None:
        return method.method, *samples, *("-" for _ in range(9))
    smallest = method.smallest
    fits_from = "-" if smallest is None else machine_of(smallest)
    if option is None or method.cheapest is None:
        why = "nothing within the limits" if smallest else "fits nowhere"
        figures = ("-", "-") if option is None else _memory(option)
        return method.method, *samples, *figures, fits_from, why, "-", "-", "-", "-", "-"
    saves = saved_usd(methods, method)
    cost, time_s = option.cost_usd, option.run_time_s
    return (
        method.method,
        *samples,
        *_memory(option),
        fits_from,
        f"{machine_of(option)} at {place_of(option, instance=False)}",
        option.tenancy,
        duration(time_s.likely if time_s else None),
        usd(option.expected_cost_usd),
        usd_range(cost) if cost else UNKNOWN,
        "-" if method is methods[0] or saves is None else _saved(saves, methods[0]),
    )


def _memory(option: Option) -> tuple[str, str]:
    return f"{option.step.batch_size:,}", gib(option.step.memory.reserved_bytes.likely)


def _saved(saves: float, first: MethodPlan) -> str:
    assert first.cheapest is not None
    whole = first.cheapest.expected_cost_usd or 0.0
    return f"{usd(saves)} ({saves / whole:.0%})" if whole else usd(saves)


def _gives_up(methods: Sequence[MethodPlan]) -> Iterator[str]:
    for method in methods:
        yield f"{method.method}: {method.gives_up}"
        if method.not_planned:
            yield f"{method.method} is not planned here: {method.not_planned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestDocument:
    """The smallest GPU a step fits on, in the cheapest place that has it."""

    gpu: str
    gpus: int
    """1 where the step fits on a single one."""
    memory_bytes: float
    """Of each, as far as a process can use it."""
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodDocument:
    """One method of a model: what it needs, costs and gives up."""

    method: str
    batch_size: int | None
    """Per GPU of the choice; null where there is none."""
    allocated_bytes_per_gpu: Estimate | None
    reserved_bytes_per_gpu: Estimate | None
    smallest: SmallestDocument | None
    """Null where it fits nowhere."""
    saves_usd: float | None
    """Against the first method, on average; null where either has no choice, or where they train
    unequal amounts."""
    gives_up: str
    not_planned: str | None
    """Why there is no plan."""
    plan: PlanDocument | None
    """As of `outlay plan MODEL --method NAME`, the question among it; null where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodsDocument(Document):
    """The methods of a model side by side."""

    model: str
    cheapest: str | None
    """The method whose choice costs least on average; null where none has one."""
    methods: Sequence[MethodDocument]


def methods_document(question: TrainingQuestion, methods: Sequence[MethodPlan]) -> MethodsDocument:
    """`outlay plan MODEL --method all --json`."""
    cheapest = cheapest_method(methods)
    return MethodsDocument(
        model=question.model,
        cheapest=None if cheapest is None else cheapest.method,
        methods=[_method_document(methods, method) for method in methods],
    )


def _expected_usd(method: MethodPlan) -> float:
    assert method.cheapest is not None
    return method.cheapest.expected_cost_usd or 0.0


def _method_document(methods: Sequence[MethodPlan], method: MethodPlan) -> MethodDocument:
    option, plan, workload = method.cheapest, method.plan, method.workload
    memory = None if option is None else option.step.memory
    return MethodDocument(
        method=method.method,
        batch_size=None if option is None else option.step.batch_size,
        allocated_bytes_per_gpu=None if memory is None else memory.allocated_bytes,
        reserved_bytes_per_gpu=None if memory is None else memory.reserved_bytes,
        smallest=_smallest_document(method.smallest),
        saves_usd=saved_usd(methods, method),
        gives_up=method.gives_up,
        not_planned=method.not_planned or None,
        plan=None
        if plan is None or workload is None
        else plan_document(plan, workload.name, question=method.answered),
    )


def _smallest_document(option: Option | None) -> SmallestDocument | None:
    if option is None:
        return None
    placement = option.step.placement
    return SmallestDocument(
        gpu=placement.gpu.name,
        gpus=placement.site.total,
        memory_bytes=placement.gpu.usable_bytes,
        batch_size=option.step.batch_size,
    )
