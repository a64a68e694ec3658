"""Models by their names: bundled ones, a library's own, a folder's, a hub's.

    find_model("llama-3.1-8b")                    bundled, under any usual spelling
    find_model("meta-llama/Llama-3.1-8B")         ... and as its repository
    find_model("hf:ID"), find_model("hf:FOLDER")  of its config.json
    find_model("timm:NAME"), "torchvision:NAME", "ultralytics:NAME", "diffusers:ID or FOLDER"

A bundled model is a row of `data/models.csv` and a config in `data/model_configs/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from outlay.errors import InputError, NotKnown
from outlay.facts import DATA, Fact, rows_of
from outlay.files import parsed_json, read_data
from outlay.models.hub import CONFIG, read_config

Library = Literal["transformers", "timm", "torchvision", "diffusers", "ultralytics", "torch"]
"""What builds a model of its config; of `torch` the recipe itself has the layers."""
Task = Literal[
    "text generation",
    "masked language",
    "text to text",
    "image classification",
    "image and text",
    "detection",
    "segmentation",
    "image generation",
    "speech to text",
    "speech recognition",
]
"""What a model is for: that decides the recipes it can be trained with."""

PREFIXES: Mapping[str, Library] = {
    "hf": "transformers",
    "timm": "timm",
    "torchvision": "torchvision",
    "diffusers": "diffusers",
    "ultralytics": "ultralytics",
}
"""What stands before the colon of a name, and the library it means."""
LIBRARIES: tuple[Library, ...] = (*PREFIXES.values(), "torch")
OTHER_NAMES = (
    "hf:OWNER/NAME or hf:FOLDER is any other; timm:NAME, torchvision:NAME and diffusers:ID are "
    "those of a library."
)
"""How models are named that do not come with outlay."""
_DIFFUSERS_CONFIGS = ("transformer/config.json", "unet/config.json", "config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a library builds of a config, and what is published of it."""

    name: str
    """As outlay calls it: `llama-3.1-8b`, `timm:vit_base_patch16_224`, `hf:./folder`."""
    title: str
    """As its makers write it: Llama 3.1 8B."""
    library: Library
    task: Task
    config: Mapping[str, Any]
    """What the library builds it of; for timm and torchvision the `architecture` alone."""
    family: str = ""
    repository: str = ""
    """Where it is published on the hub."""
    aliases: tuple[str, ...] = ()
    parameters: Fact | None = None
    """The published count, in units of `Fact.unit`, at its printed precision."""
    counted: str = ""
    """The class of transformers whose parameters are published, where the recipes build another."""
    context_tokens: int | None = None
    """The longest sequence it takes."""
    config_source: str = ""
    as_of: str = ""
    note: str = ""

    @property
    def is_bundled(self) -> bool:
        """Whether it is in the table of models."""
        return ":" not in self.name

    @property
    def runs_own_code(self) -> bool:
        """Whether the library runs code of the repository to build it."""
        return "auto_map" in self.config


def find_model(name: str, *, trust_remote_code: bool = False) -> Model:
    """The model of a name; a name nobody knows is a `NotKnown` with the nearest ones.

    A config whose model is code of its repository is refused without `trust_remote_code`.
    """
    text = name.strip()
    bundled = bundled_model(text)
    if bundled is not None:
        return bundled
    prefix, colon, rest = text.partition(":")
    if colon and prefix in PREFIXES and rest.strip():
        return _of_library(prefix, rest.strip(), trust_remote_code=trust_remote_code)
    fix = f"`outlay recipe models` lists the bundled ones; {OTHER_NAMES}"
    raise NotKnown("model", name, (model.name for model in bundled_models()), fix=fix)


def names_model(text: str) -> bool:
    """Whether a text is a model's name: a bundled one in any spelling, or one with a prefix."""
    prefix, colon, rest = text.strip().partition(":")
    if colon and prefix in PREFIXES and bool(rest.strip()):
        return True
    return bundled_model(text) is not None


@cache
def bundled_models() -> tuple[Model, ...]:
    """The models in the table, in its order: families together."""
    return tuple(map(_model_of, rows_of("models.csv")))


# The table


_WITHOUT = re.compile(r"\b(?:instruct|chat|it|hf|base model)\b", re.IGNORECASE)
"""What a model of the same shape may be called besides."""


def _model_of(row: dict[str, str]) -> Model:
    path = DATA / "model_configs" / f"{row['model']}.json"
    config = parsed_json(read_data(path))
    assert isinstance(config, Mapping)
    return Model(
        name=row["model"],
        title=row["title"],
        library=row["library"],  # type: ignore[arg-type]
        task=row["task"],  # type: ignore[arg-type]
        config=config,
        family=row["family"],
        repository=row["repository"],
        aliases=tuple(alias for alias in row["aliases"].split(" | ") if alias),
        parameters=Fact(
            text=row["parameters"],
            unit=row["unit"],
            source=row["parameters_source"],
            as_of=row["as_of"],
            note=row["note"],
        ),
        counted=row["counted"],
        context_tokens=int(row["context_tokens"]) if row["context_tokens"] else None,
        config_source=row["config_source"],
        as_of=row["as_of"],
        note=row["note"],
    )


def bundled_model(text: str) -> Model | None:
    """The bundled model of a spelling, if there is one; a folder is none, whatever its name."""
    place = text.strip().removeprefix("hf:").strip()
    is_folder = place != text.strip() and Path(place).is_dir()
    if is_folder or place.startswith((".", "/", "~")):
        return None
    return _bundled_by_spelling().get(_letters(text))


def _letters(text: str) -> str:
    """A name without what people write differently: case, spaces, dashes, `Instruct`."""
    plain = _WITHOUT.sub("", text.strip().removeprefix("hf:"))
    return "".join(character for character in plain.lower() if character.isalnum())


@cache
def _bundled_by_spelling() -> Mapping[str, Model]:
    spellings: dict[str, Model] = {}
    for model in bundled_models():
        for spelling in _spellings(model):
            spellings.setdefault(_letters(spelling), model)
    return spellings


def _spellings(model: Model) -> Iterator[str]:
    yield from (model.name, model.title)
    for name in (model.repository, *model.aliases):
        if name:
            yield from (name, name.rpartition("/")[2])


# Others


def _of_library(prefix: str, place: str, *, trust_remote_code: bool) -> Model:
    library = PREFIXES[prefix]
    name = f"{prefix}:{place}"
    if library in ("timm", "torchvision", "ultralytics"):
        if not re.fullmatch(r"[\w./-]+", place, re.ASCII):
            raise InputError(
                f"{place!r} is no name of a model of {library}.",
                fix="Write for example timm:vit_base_patch16_224 or torchvision:resnet50.",
            )
        task = _task_of_architecture(library, place)
        return Model(
            name=name, title=place, library=library, task=task, config={"architecture": place}
        )
    if library == "diffusers":
        config, source = read_config(place, _DIFFUSERS_CONFIGS)
        return _of_diffusers(name, place, config, source)
    config, source = read_config(place, CONFIG)
    return _of_transformers(name, place, config, source, trust_remote_code=trust_remote_code)


def _task_of_architecture(library: Library, name: str) -> Task:
    detectors = ("rcnn", "retinanet", "ssd", "fcos", "yolo", "rtdetr")
    if library == "ultralytics":
        is_segmenting = "-seg" in name
        return "segmentation" if is_segmenting else "detection"
    if library == "torchvision" and any(word in name for word in detectors):
        return "detection"
    if library == "torchvision" and name.startswith(("deeplab", "fcn_", "lraspp")):
        return "segmentation"
    return "image classification"


def _of_diffusers(name: str, place: str, config: Mapping[str, Any], source: str) -> Model:
    if not isinstance(config.get("_class_name"), str):
        raise InputError(
            f"{source} is no config of a model of diffusers.",
            why="It has no `_class_name`.",
            fix="Name a pipeline's folder or repository, or that of its unet or transformer.",
        )
    return Model(
        name=name,
        title=_title(place),
        library="diffusers",
        task="image generation",
        config=_plain(config),
        repository="" if Path(place).expanduser().exists() else place,
        config_source=source,
    )


def _of_transformers(
    name: str, place: str, config: Mapping[str, Any], source: str, *, trust_remote_code: bool
) -> Model:
    if "auto_map" in config and not trust_remote_code:
        raise InputError(
            f"{place} brings its own code, which would run on this machine.",
            why="Its config has `auto_map`: transformers alone cannot build the model.",
            fix="If you trust that repository, say so: --trust-remote-code.",
        )
    if not isinstance(config.get("model_type"), str):
        raise InputError(
            f"{source} is no config of a model of transformers.",
            why="It has no `model_type`.",
            fix="For an image generator write diffusers:ID; else name the model's own folder.",
        )
    text = config.get("text_config")
    context = (text if isinstance(text, Mapping) else config).get("max_position_embeddings")
    plain = _plain(config)
    if "auto_map" in config:
        folder = Path(place).expanduser()
        where = str(folder.absolute()) if folder.is_dir() else place
        plain = {**plain, "auto_map": config["auto_map"], "_name_or_path": where}
    return Model(
        name=name,
        title=_title(place),
        library="transformers",
        task=_task_of_config(config, place),
        config=plain,
        family=config["model_type"],
        repository="" if Path(place).expanduser().exists() else place,
        context_tokens=context if isinstance(context, int) and context > 0 else None,
        config_source=source,
    )


_TASKS_BY_CLASS: Mapping[str, Task] = {
    "ForCausalLM": "text generation",
    "LMHeadModel": "text generation",
    "ForMaskedLM": "masked language",
    "ForPreTraining": "masked language",
    "ForCTC": "speech recognition",
    "WhisperForConditionalGeneration": "speech to text",
    "Speech2TextForConditionalGeneration": "speech to text",
    "T5ForConditionalGeneration": "text to text",
    "BartForConditionalGeneration": "text to text",
    "ForImageClassification": "image classification",
    "ForObjectDetection": "detection",
    "ForSemanticSegmentation": "segmentation",
}
"""By the end of the class that a config names."""
_TASKS_BY_TYPE: Mapping[str, Task] = {
    "clip": "image and text",
    "siglip": "image and text",
    "bert": "masked language",
    "roberta": "masked language",
    "xlm-roberta": "masked language",
    "deberta-v2": "masked language",
    "modernbert": "masked language",
    "vit": "image classification",
    "dinov2": "image classification",
    "convnext": "image classification",
    "swin": "image classification",
    "t5": "text to text",
    "whisper": "speech to text",
    "wav2vec2": "speech recognition",
}


def _task_of_config(config: Mapping[str, Any], place: str) -> Task:
    classes = config.get("architectures")
    for name in classes if isinstance(classes, list) else ():
        for ending, task in _TASKS_BY_CLASS.items():
            if str(name).endswith(ending):
                return task
    task_of_type = _TASKS_BY_TYPE.get(config["model_type"])
    if task_of_type is not None:
        return task_of_type
    if not classes:
        return "text generation"
    raise InputError(
        f"What {place} is trained for is not known: its config names {classes[0]}.",
        fix="Write its step as a function (docs/tracing.md), and trace FILE.py:FUNCTION.",
    )


_LEFT_OUT = frozenset(
    {
        "_name_or_path",
        "_commit_hash",
        "_diffusers_version",
        "architectures",
        "auto_map",
        "dtype",
        "label2id",
        "id2label",
        "quantization_config",
        "task_specific_params",
        "torch_dtype",
        "transformers_version",
    }
)
"""What a config says besides the model's shape."""


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config makes the model."""
    plain = {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in _LEFT_OUT
    }
    labels = config.get("id2label")
    if isinstance(labels, Mapping) and labels:
        plain["num_labels"] = len(labels)
    return plain


def _title(place: str) -> str:
    return Path(place).name or place
