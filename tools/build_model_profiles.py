"""Trace recipes of models at several lengths and write the bundled profiles (needs torch).

    python tools/build_model_profiles.py                   all that `STEPS` lists and are missing
    python tools/build_model_profiles.py llama-3.2-1b.lora  that one, anew

What takes texts is traced with few of its layers at a grid of batch sizes and lengths, and as a
whole at one point (`outlay.trace.length_scaling`); where few layers do not tell, as a whole at
each. What takes images, latents or recordings is traced at the size that its model has.
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
from outlay.models.recipe import RecipeSettings, find_recipe, methods_for, profile_name, target_of
from outlay.trace.child import error_naming_line, import_torch
from outlay.trace.length_profile import LengthProfile
from outlay.trace.length_scaling import LayersDiffer, length_profiles
from outlay.trace.store import write_length_profiles, write_profile
from outlay.trace.target import load_function, parse_target
from outlay.trace.tracing import profile_of

if TYPE_CHECKING:
    from outlay.trace.capture import Capture
    from outlay.trace.profile import Profile

FOLDER = DATA / "model_profiles"

SHORTEST, LONGEST = 256, 32_768
SHORTEST_IN_FOUR_BITS = 272
"""Of few tokens, up to 512 in a batch, products with 4-bit weights run as another kernel."""
SHORTEST_OF_SHORT, SHORT = 128, 1024
"""Of a model that takes so few tokens at most."""
SHORTEST_OF_CAPTIONS, CAPTION = 16, 128
"""Of a model that takes captions."""

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

    if model.task == "image and text":  # two depths in one
        return None
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
    shortest = SHORTEST_OF_CAPTIONS if context <= CAPTION else shortest
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


# At one size


BATCH_SIZES_OF_GANS = (8, 16, 32, 64)
"""StyleGAN2's discriminator compares images in groups of four: two groups at least."""


def traced_at_its_size(
    model: Model, method: str, settings: Mapping[str, Any], folder: Path
) -> Profile:
    """A recipe of a model that takes no texts, at any batch size."""
    chosen = RecipeSettings(values=settings)
    return profile_of(
        target_of(model, method, chosen, folder),
        BATCH_SIZES_OF_GANS if method == "gan" else None,
        name=profile_name(model, method, chosen)[0],
        description=f"{model.title}: {find_recipe(method).title}",
        sample=sample_of(model, method, settings),
        cache=False,
    )


def sample_of(model: Model, method: str, settings: Mapping[str, Any]) -> str:
    """What one sample is: `image 224x224`, `recording of 30 s`."""
    if model.task in ("speech to text", "speech recognition"):
        return f"recording of {30 if model.task == 'speech to text' else 15} s"
    size = settings.get("image_size") or find_recipe(method).constant("image_size").default
    size = size or _own_size(model)
    return f"image {size}x{size}"


def _own_size(model: Model) -> int:
    """Of the images a model takes: height and width."""
    name = model.config.get("architecture", "")
    if model.library == "timm":
        import timm

        return int(timm.models.get_pretrained_cfg(name).input_size[-1])
    if model.library == "torchvision":
        weights = importlib.import_module("torchvision.models").get_model_weights(name)
        return int(weights.DEFAULT.transforms().crop_size[0])
    if model.library == "torch":
        return int(model.config["image_size"])
    if model.library == "diffusers":
        of_flux = 1024
        return 8 * model.config["sample_size"] if "sample_size" in model.config else of_flux
    return int(model.config.get("image_size", 224))


# All of them


_FIRST = (
    *("llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b", "gemma-3-1b", "bert-base", "llama-3.2-3b"),
    *("qwen3-8b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-0.6b", "gemma-2-2b", "qwen2.5-1.5b"),
    *("phi-3-mini", "modernbert-base", "smollm2-135m", "gpt2", "tinyllama-1.1b", "qwen3-4b"),
)
"""The models that people use most; then those of the table in its order."""
_METHODS = {
    "text generation": ("qlora", "lora", "full"),
    "masked language": ("full", "embedding"),
    "text to text": ("full",),
    "image and text": ("embedding",),
    "image classification": ("classify",),
    "image generation": ("diffusion", "gan"),
    "speech to text": ("speech",),
    "speech recognition": ("speech",),
}
"""Of each task, the methods people use. Detectors do more operations with each image, so that no
profile has those of every batch size: they are traced where they are asked for."""
_STABLE_DIFFUSION = ("stable-diffusion-xl", "stable-diffusion-1.5", "stable-diffusion-3-medium")
_OTHER_SETTINGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, {"image_size": 224}) for name in ("dinov2-base", "dinov2-large")),
    *((name, {"lora_rank": 16}) for name in (*_STABLE_DIFFUSION, "flux.1-dev")),
)
"""What people change of models: by their usual method."""
_SMALL_PARAMETERS = 2e9
_UNCHECKPOINTED = {"checkpointing": False}
"""What people change of a small model, whose activations fit."""


def steps() -> list[tuple[Model, str, Mapping[str, Any]]]:
    """Model, method and settings of each bundled step, the most used first."""
    table = {model.name: model for model in bundled_models()}
    models = [table[name] for name in dict.fromkeys([*_FIRST, *table])]
    every = [
        (model, method)
        for model in models
        for method in _METHODS.get(model.task, ())
        if method in methods_for(model)
    ]
    small = [
        (model, method)
        for model, method in every
        if _parameters(model) < _SMALL_PARAMETERS and _is_checkpointed(method)
    ]
    return [
        *((model, method, {}) for model, method in every),
        *((table[name], methods_for(table[name])[0], kept) for name, kept in _OTHER_SETTINGS),
        *((model, method, _UNCHECKPOINTED) for model, method in small),
    ]


def _is_checkpointed(method: str) -> bool:
    constants = find_recipe(method).constants
    return any(constant.name == "checkpointing" and constant.default for constant in constants)


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
            start_s = time.monotonic()
            try:
                lengths = _trace(model, method, settings, Path(folder), path)
            except TraceFailed as error:
                print(f"{name}: {error}", flush=True)
                continue
            taken_s = time.monotonic() - start_s
            print(f"{name}: {lengths}; {path.stat().st_size:,} bytes, {taken_s:.0f} s", flush=True)


def _trace(model: Model, method: str, settings: Mapping[str, Any], folder: Path, path: Path) -> str:
    """Write the profile of one step; says what of it was traced."""
    if any(constant.name == "tokens" for constant in find_recipe(method).constants):
        pieces = traced(model, method, settings, folder)
        write_length_profiles(pieces, path)
        return ", ".join(f"{low} to {high}" for low, high in (piece.lengths for piece in pieces))
    profile = traced_at_its_size(model, method, settings, folder)
    write_profile(profile, path)
    return profile.sample


if __name__ == "__main__":
    main(sys.argv[1:])
