"""Trace recipes of models at several lengths and write the bundled profiles (needs torch).

    python tools/build_model_profiles.py                   all that `STEPS` lists and are missing
    python tools/build_model_profiles.py llama-3.2-1b.lora  that one, anew

Each is traced with few of its layers at a grid of batch sizes and lengths, and as a whole at one
point (`outlay.trace.length_scaling`); where few layers do not tell, as a whole at each.
"""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import TraceFailed
from outlay.facts import DATA
from outlay.models.model import Model, bundled_models
from outlay.models.recipe import RecipeSettings, find_recipe, profile_name, target_of
from outlay.trace.child import error_naming_line, import_torch
from outlay.trace.length_profile import LengthProfile
from outlay.trace.length_scaling import LayersDiffer, length_profiles
from outlay.trace.store import write_length_profiles
from outlay.trace.target import load_function, parse_target

if TYPE_CHECKING:
    from outlay.trace.capture import Capture

FOLDER = DATA / "model_profiles"

SHORTEST, LONGEST = 256, 32_768
SHORTEST_IN_FOUR_BITS = 272
"""Of few tokens, up to 512 in a batch, products with 4-bit weights run as another kernel."""
SHORTEST_OF_SHORT, SHORT = 128, 1024
"""Of a model that takes so few tokens at most."""

_DEPTHS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
"""How configs call the number of their layers."""
_LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes")


# Few layers


def few_layers(model: Model) -> Model | None:
    """The model with one layer of each kind in the middle, the first and the last; None if small.

    Layers of two kinds alternate in a pattern: all of it is kept, and what comes last is of the
    kind that comes last in the whole.
    """
    import transformers

    values = {key: value for key, value in model.config.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(model.config["model_type"], **values)
    depth = config.get_text_config().num_hidden_layers
    kinds = list(getattr(config.get_text_config(), "layer_types", None) or ["layer"] * depth)
    few = max(*(kinds.index(kind) + 2 for kind in set(kinds)), 3)
    while few < depth and kinds[few - 1] != kinds[-1]:
        few += 1
    if 2 * few > depth:
        return None
    return replace(model, config=_with_depth(model.config, depth, few))


def _with_depth(config: Mapping[str, Any], depth: int, few: int) -> dict[str, Any]:
    """A config with fewer layers; what it lists for each layer is cut."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            result[key] = _with_depth(value, depth, few)
        elif key in _DEPTHS and isinstance(value, int):
            result[key] = min(value, few)
        elif isinstance(value, list) and len(value) == depth:
            result[key] = value[:few]
        else:
            result[key] = value
    return result


def sizes_in(config: Mapping[str, Any]) -> Iterator[int]:
    """Every whole number in a config."""
    for value in config.values():
        if isinstance(value, Mapping):
            yield from sizes_in(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield value


# One step


def traced(
    model: Model, method: str, settings: Mapping[str, Any], folder: Path
) -> tuple[LengthProfile, ...]:
    """A recipe of a model at any length."""
    context = min(model.context_tokens or LONGEST, LONGEST)
    shortest = SHORTEST_OF_SHORT if context <= SHORT else SHORTEST
    few = few_layers(model)
    trace = partial(_capture, model, method, settings, folder)
    if method not in _once_traced:
        _once_traced.add(method)
        (trace if few is None else partial(_capture, few, method, settings, folder))(2, shortest)
    build = partial(
        length_profiles,
        trace,
        (SHORTEST_IN_FOUR_BITS if method == "qlora" else shortest, context),
        hints=set(sizes_in(model.config)),
        name=profile_name(model, method, RecipeSettings(values=settings))[0],
        description=f"{model.title}: {find_recipe(method).title}",
        sample="sequence of {length} tokens",
    )
    try:
        pieces = build(
            trace_few=None if few is None else partial(_capture, few, method, settings, folder)
        )
    except LayersDiffer as error:
        print(f"  {error} All layers are traced at each point.", flush=True)
        pieces = build()
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return tuple(replace(piece, traced_on=day, versions=versions) for piece in pieces)


_once_traced: set[str] = set()
"""Methods of which a trace was made and dropped: libraries make some tensors once in a process, so
that the first trace allocates more than any other."""


def _capture(
    model: Model,
    method: str,
    settings: Mapping[str, Any],
    folder: Path,
    batch_size: int,
    length: int,
) -> Capture:
    from outlay.trace.capture import capture_steps

    chosen = RecipeSettings(values={**settings, "tokens": length})
    target = parse_target(target_of(model, method, chosen, folder))
    with error_naming_line(target, f"at batch size {batch_size}, length {length}"):
        capture = capture_steps(load_function(target), batch_size, own_file=str(target.path))  # type: ignore[arg-type]
    gc.collect()
    return capture


# All of them


_FIRST = (
    *("llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b", "gemma-3-1b", "bert-base", "llama-3.2-3b"),
    *("qwen3-8b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-0.6b", "gemma-2-2b", "qwen2.5-1.5b"),
    *("phi-3-mini", "modernbert-base", "smollm2-135m", "gpt2", "tinyllama-1.1b", "qwen3-4b"),
)
"""The models that people use most; then those of the table in its order."""
_METHODS = {
    "text generation": ("qlora", "lora", "full"),
    "masked language": ("full",),
    "text to text": ("full",),
}
"""Of each task, those methods that have a length."""
_SMALL_PARAMETERS = 2e9
_UNCHECKPOINTED = {"checkpointing": False}
"""What people change of a small model, whose activations fit."""


def steps() -> list[tuple[Model, str, Mapping[str, Any]]]:
    """Model, method and settings of each bundled step, the most used first."""
    table = {model.name: model for model in bundled_models()}
    models = [table[name] for name in dict.fromkeys([*_FIRST, *table])]
    every = [(model, method) for model in models for method in _METHODS.get(model.task, ())]
    small = [(model, method) for model, method in every if _parameters(model) < _SMALL_PARAMETERS]
    return [
        *((model, method, {}) for model, method in every),
        *((model, method, _UNCHECKPOINTED) for model, method in small),
    ]


def _parameters(model: Model) -> float:
    published = model.parameters
    if published is None or not published.text:
        return 0.0
    scale = published.unit or "1"
    return float(published.text) * (float(scale) if scale[0] == "1" else 1.0)


def main(names: list[str]) -> None:
    """Trace the named steps anew, or those that are missing."""
    import_torch()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for model, method, settings in steps():
            name, _ = profile_name(model, method, RecipeSettings(values=settings))
            path = FOLDER / f"{name}.json.gz"
            if name not in names if names else path.exists():
                continue
            start_s = time.process_time()
            try:
                pieces = traced(model, method, settings, Path(folder))
            except TraceFailed as error:
                print(f"{name}: {error}", flush=True)
                continue
            write_length_profiles(pieces, path)
            taken_s = time.process_time() - start_s
            ranges = ", ".join(f"{low} to {high}" for low, high in (p.lengths for p in pieces))
            print(f"{name}: {ranges}; {path.stat().st_size:,} bytes, {taken_s:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
