"""The training step of a model by its name, and what follows from it where nothing is said.

profile_of_model     its operations: bundled ones, or a trace of the rendered recipe
bundled_step         the step of a name, if its operations are bundled
with_model_defaults  the workload with the size of its checkpoints and the time to fetch weights
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from outlay.facts import assumed, assumed_range
from outlay.models.model import bundled_model, find_model
from outlay.models.recipe import (
    RecipeSettings,
    check_packages,
    profile_name,
    recipe_for,
    target_of,
)
from outlay.progress import Progress, silent
from outlay.trace.profile import Profile
from outlay.trace.store import (
    bundled_model_profiles,
    bundled_profiles,
    find_profile,
    published_batch,
    step_name,
)
from outlay.trace.target import SELECTED
from outlay.trace.trace_cache import TraceCache
from outlay.uncertainty import Estimate
from outlay.units import GB, MB
from outlay.workload.workload import Dataset, Step, Workload

FROM_NOTHING = ("pretrain", "gan")
"""Methods that begin with no published weights."""


def profile_of_model(
    step: Step,
    selected: float = SELECTED,
    *,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> Profile:
    """The operations of a step that is a model and a recipe: bundled ones, without torch, or a
    trace of the rendered recipe; for `cache` and `progress` see `profile_of`."""
    assert step.model is not None
    asked = Step(
        model=step.model,
        method=step.method,
        tokens=step.tokens,
        settings=step.settings,
        trust_remote_code=step.trust_remote_code,
    )
    return _profile(asked, selected, cache, progress)  # type: ignore[arg-type]


@lru_cache(maxsize=8)
def _profile(step: Step, selected: float, cache: TraceCache | bool, progress: Progress) -> Profile:
    """Read or traced once, so that what is predicted from it is predicted once."""
    model = find_model(step.model or "", trust_remote_code=step.trust_remote_code)
    recipe = recipe_for(model, step.method).method
    length = {} if step.tokens is None else {"tokens": step.tokens}
    values = RecipeSettings(values={**length, **dict(step.settings)})
    bundled, sample_tokens = profile_name(model, recipe, values)
    if bundled in bundled_model_profiles():
        profile = find_profile(bundled, sample_tokens)
    else:
        from outlay.trace.tracing import profile_of

        check_packages(model, recipe, values)
        target = target_of(model, recipe, values)
        profile = profile_of(target, selected=selected, cache=cache, progress=progress)
    batch = published_batch(step_name(model.name, recipe)) or published_batch(recipe)
    return replace(profile, published=profile.published or batch)


def bundled_step(name: str, method: str | None, settings: RecipeSettings) -> Step | None:
    """The step of a model's name where its operations are bundled, so that no torch is needed.

    None of anything else, and of a name that is a bundled profile's as well.
    """
    is_plain = method is None and not settings.values
    model = bundled_model(name)
    if model is None or (is_plain and name in bundled_profiles()):
        return None
    bundled, tokens = profile_name(model, method, settings)
    if bundled not in bundled_model_profiles():
        return None
    others = {key: value for key, value in settings.values.items() if key != "tokens"}
    return Step(model=model.name, method=method, tokens=tokens, settings=tuple(others.items()))


def with_model_defaults(workload: Workload, profile: Profile) -> tuple[Workload, tuple[str, ...]]:
    """The workload with what its model and method say that it does not; and in words.

    A checkpoint has what is trained and the optimizer's state of it: with LoRA the adapter alone.
    Before the first step the published weights are fetched, as bf16, in each session. Ignores what
    else a framework writes (a tokenizer, the state of random numbers).
    """
    step = workload.step
    if step.model is None:
        return workload, ()
    notes = []
    checkpoint_bytes = trained_state_bytes(profile)
    if workload.checkpoint.size_bytes is None and workload.checkpoint.time_s is None:
        workload = replace(
            workload, checkpoint=replace(workload.checkpoint, size_bytes=checkpoint_bytes)
        )
        notes.append(
            f"A checkpoint is taken to have {_amount(checkpoint_bytes)}: what is trained "
            f"({profile.trainable_parameters:,} of {profile.parameters:,} parameters) and its "
            "optimizer's state."
        )
    if step.method not in FROM_NOTHING and workload.data.preparation_s == Dataset().preparation_s:
        fetched_bytes = profile.parameters * assumed("weight_bytes_per_parameter")
        fetching_s = _fetching_s(fetched_bytes)
        workload = replace(workload, data=replace(workload.data, preparation_s=fetching_s))
        notes.append(
            f"Each session fetches {_amount(fetched_bytes)} of published weights, a part of data "
            f"preparation: {fetching_s.likely:,.0f} s ({fetching_s.low:,.0f} to "
            f"{fetching_s.high:,.0f})."
        )
    return workload, tuple(notes)


def trained_state_bytes(profile: Profile) -> float:
    """What is trained, at the width of its gradients, and the optimizer's state of it."""
    smallest = profile.memory[min(profile.memory)]
    return profile.gradient_bytes + smallest.optimizer_state


def _fetching_s(amount_bytes: float) -> Estimate:
    rate = assumed_range("data_download_bytes_per_s")
    assert isinstance(rate, Estimate)
    return Estimate(
        low=amount_bytes / rate.high,
        likely=amount_bytes / rate.likely,
        high=amount_bytes / rate.low,
    )


def _amount(amount_bytes: float) -> str:
    in_gb = amount_bytes >= GB
    return f"{amount_bytes / (GB if in_gb else MB):,.3g} {'GB' if in_gb else 'MB'}"
