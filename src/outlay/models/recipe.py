"""Recipes: one training step a file, with its settings as constants at the top.

    methods_for(find_model("llama-3.1-8b"))     full, lora, qlora, pretrain ...
    rendered_step(model, "qlora", settings)     the text of the file, as `outlay recipe show` has
    target_of(model, "qlora", settings)         the file written: FOLDER/step.py:training_step
    named_target("llama-3.1-8b", "qlora")       the same for whatever a user gives as TARGET

Recipes lie in `data/recipes/`. They are read and written, never imported here: rendering replaces
the values of constants, puts in the model's config, and writes out the functions of `parts.py` that
are used. What comes out is traced as it is, and may be copied and changed.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import importlib.util
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from outlay.errors import ExtraMissing, InputError, NotKnown
from outlay.facts import DATA
from outlay.files import data_folder, write_whole
from outlay.models.model import (
    LIBRARIES,
    OTHER_NAMES,
    Library,
    Model,
    Task,
    bundled_models,
    find_model,
    names_model,
)
from outlay.trace.store import bundled_profiles, step_name

SettingValue = str | int | float | bool | None | tuple[str, ...]

_FOLDER = DATA / "recipes"
_PARTS = "parts"
_FUNCTION = "training_step"
_WIDTH = 96
_LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSettings:
    """What a user sets of a recipe; what is not named stays as the recipe has it."""

    values: Mapping[str, SettingValue] = field(default_factory=dict)
    """By name in lower case: `tokens`, `precision`, `checkpointing`, `lora_rank` ... Text is read
    as what the setting is: "2048", "yes", "q_proj,v_proj"."""

    @classmethod
    def from_words(cls, words: Iterable[str]) -> RecipeSettings:
        """The settings of `KEY=VALUE` words, as options of a command give them."""
        values: dict[str, SettingValue] = {}
        for word in words:
            key, equals, value = word.partition("=")
            name = _setting_name(key)
            if not equals or not name:
                raise InputError(
                    f"{word!r} sets nothing.", fix="Write KEY=VALUE: tokens=2048, checkpointing=no."
                )
            if name in values:
                raise InputError(f"{key.strip()} is set twice.", fix="Set it once.")
            values[name] = value.strip()
        return cls(values=values)


AS_IT_IS = RecipeSettings()
"""Nothing is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeConstant:
    """One setting of a recipe, as its file has it."""

    name: str
    """In lower case."""
    kind: str
    """Its annotation: `int`, `float | None`, `Literal[...]` ..."""
    default: SettingValue
    choices: tuple[SettingValue, ...] = ()
    """What it may be; empty where any value of its kind will do."""
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe's file: what it says of itself, and what can be set."""

    method: str
    title: str
    constants: tuple[RecipeConstant, ...]
    text: str = field(repr=False)

    def constant(self, name: str) -> RecipeConstant:
        """A setting by its name; an unknown one is an error that names all there are."""
        for constant in self.constants:
            if constant.name == name:
                return constant
        names = [constant.name for constant in self.constants]
        raise NotKnown(f"setting of {self.method}", name, names, fix=f"It has {', '.join(names)}.")


# Methods

_METHODS: Mapping[Task, tuple[str, ...]] = {
    "text generation": ("full", "lora", "qlora", "dpo", "pretrain"),
    "masked language": ("full", "lora", "pretrain", "embedding"),
    "text to text": ("full", "lora", "qlora"),
    "image classification": ("classify",),
    "image and text": ("embedding",),
    "detection": ("detect",),
    "segmentation": ("segment",),
    "image generation": ("diffusion", "gan"),
    "speech to text": ("speech",),
    "speech recognition": ("speech",),
}
_LIBRARIES: Mapping[str, tuple[Library, ...]] = {
    "detect": ("torchvision",),
    "diffusion": ("diffusers",),
    "gan": ("torch",),
    "segment": ("torchvision", "transformers"),
}
"""Whose models a recipe builds, unless it is all of those of its task."""
_AUTO_CLASSES: Mapping[Task, str] = {
    "text generation": "AutoModelForCausalLM",
    "masked language": "AutoModelForMaskedLM",
    "text to text": "AutoModelForSeq2SeqLM",
    "speech to text": "AutoModelForSpeechSeq2Seq",
    "speech recognition": "AutoModelForCTC",
}
"""The class of transformers that a recipe builds, unless it has only one."""


def find_recipe(method: str) -> Recipe:
    """The recipe of a method; an unknown one is a `NotKnown` with the nearest ones."""
    name = method.strip().lower()
    known = _recipe_names()
    if name not in known:
        raise NotKnown("method", method, known, fix=f"There are {', '.join(known)}.")
    return _recipe(name)


def bundled_recipes() -> tuple[Recipe, ...]:
    """All recipes, in the order of their names."""
    return tuple(map(_recipe, _recipe_names()))


def methods_for(model: Model) -> tuple[str, ...]:
    """The recipes a model can be trained with, the usual one first."""
    methods = _METHODS.get(model.task, ())
    return tuple(name for name in methods if model.library in _LIBRARIES.get(name, LIBRARIES))


def tasks_of(method: str) -> tuple[Task, ...]:
    """What the models are for that a recipe trains."""
    return tuple(task for task, methods in _METHODS.items() if method in methods)


def recipe_for(model: Model, method: str | None = None) -> Recipe:
    """The recipe of a method for a model; without one, and for `full`, its usual one at least."""
    methods = methods_for(model)
    if not methods:
        raise InputError(
            f"There is no recipe for {model.name} yet.",
            why=f"It is a model of {model.library} for {model.task}.",
            fix="Write its step as a function (docs/tracing.md), and trace FILE.py:FUNCTION.",
        )
    if method is None or (method == "full" and method not in methods):
        return _recipe(methods[0])
    recipe = find_recipe(method)
    if recipe.method not in methods:
        raise InputError(
            f"{model.name} cannot be trained by {recipe.method}.",
            why=f"It is a model for {model.task}.",
            fix=f"Its methods are {', '.join(methods)}.{_adapters_hint(recipe, methods)}",
        )
    return recipe


def _adapters_hint(recipe: Recipe, methods: Iterable[str]) -> str:
    """How to train adapters alone, where that is a setting and no method."""
    names = [c.name for method in methods for c in _recipe(method).constants]
    is_setting = recipe.method == "lora" and "lora_rank" in names
    return " LoRA is a setting of it: --set lora_rank=16." if is_setting else ""


@cache
def _recipe_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem != _PARTS))


@cache
def _recipe(method: str) -> Recipe:
    text = (_FOLDER / f"{method}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    constants = tuple(
        RecipeConstant(
            name=name.lower(),
            kind=ast.unparse(node.annotation),
            default=ast.literal_eval(node.value),
            choices=_choices(node.annotation),
            comment=_comment(lines[node.value.end_lineno - 1]) if node.value.end_lineno else "",
        )
        for name, node in _constants(tree)
        if isinstance(node, ast.AnnAssign) and node.value is not None and name != "CONFIG"
    )
    title = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Recipe(method=method, title=title, constants=constants, text=text)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    """The constants at the top of a file."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            target: ast.expr = node.target
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
        else:
            continue
        if isinstance(target, ast.Name) and target.id.isupper():
            yield target.id, node


def _choices(annotation: ast.expr) -> tuple[SettingValue, ...]:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        values = ast.literal_eval(annotation.slice)
        return values if isinstance(values, tuple) else (values,)
    return ()


def _comment(line: str) -> str:
    _, mark, comment = line.partition("  # ")
    return comment.strip() if mark else ""


# Settings


def _setting_name(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _checked(constant: RecipeConstant, value: SettingValue) -> SettingValue:
    """A value as the setting takes it."""
    try:
        return _read(constant, value)
    except ValueError as error:
        given = value if isinstance(value, str) else repr(value)
        raise InputError(
            f"{constant.name} cannot be {given!r}."
            if given == value
            else f"{constant.name} cannot be {given}.",
            why=constant.comment and f"It is: {constant.comment}.",
            fix=f"{error}",
        ) from None


def _read(constant: RecipeConstant, value: SettingValue) -> SettingValue:
    """A value in text or as such; a ValueError says what it may be."""
    if constant.choices:
        by_letters = {_spelling(choice): choice for choice in constant.choices}
        if _spelling(value) not in by_letters:
            raise ValueError(f"It may be {', '.join(map(str, constant.choices))}.")
        return by_letters[_spelling(value)]
    if "None" in constant.kind and (value is None or value in ("none", "")):
        return None
    if constant.kind == "bool":
        return _read_switch(value)
    if constant.kind.startswith("tuple"):
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
            raise ValueError("It is texts with commas between.")
        return tuple(part.strip() for part in parts if part.strip())
    if constant.kind.startswith("str"):
        return str(value)
    return _read_number(value, is_whole=constant.kind.startswith("int"))


def _spelling(value: object) -> str:
    return "".join(character for character in str(value).lower() if character.isalnum())


def _read_switch(value: SettingValue) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("It may be yes or no.")


def _read_number(value: SettingValue, *, is_whole: bool) -> float:
    wanted = f"It is a whole number from 1 to {_LARGEST:,}." if is_whole else "It is a number."
    try:
        number = float(str(value).replace(",", "").replace("_", ""))
    except ValueError:
        raise ValueError(wanted) from None
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise ValueError(wanted)
    if not is_whole:
        return number
    if number != int(number) or not 1 <= number <= _LARGEST:
        raise ValueError(wanted)
    return int(number)


def _values_for(model: Model, recipe: Recipe, settings: RecipeSettings) -> dict[str, SettingValue]:
    """The values of all settings of a recipe: the user's, the model's, the recipe's own."""
    given = {
        _setting_name(name): _checked(recipe.constant(_setting_name(name)), value)
        for name, value in settings.values.items()
    }
    values = {constant.name: constant.default for constant in recipe.constants}
    context = model.context_tokens
    tokens = given.get("tokens", values.get("tokens"))
    if context is not None and isinstance(tokens, int) and tokens > context:
        if "tokens" in given:
            raise InputError(
                f"tokens cannot be {tokens}.",
                why=f"{model.title} takes sequences of at most {context:,} tokens.",
                fix=f"Set tokens={context}, or less.",
            )
        values["tokens"] = context
    return {**values, **given}


# Rendering


def rendered_step(model: Model, method: str | None, settings: RecipeSettings = AS_IT_IS) -> str:
    """The recipe's file for a model; unknown settings are refused, with the known ones named."""
    recipe = recipe_for(model, method)
    values = {name.upper(): value for name, value in _values_for(model, recipe, settings).items()}
    of_model = {
        "MODEL": model.name,
        "CONFIG": dict(model.config),
        "LIBRARY": model.library,
    }
    if recipe.method != "embedding" and model.task in _AUTO_CLASSES:
        of_model["AUTO_CLASS"] = _AUTO_CLASSES[model.task]
    return _with_parts(_with_values(recipe.text, {**values, **of_model}))


def _with_values(text: str, values: Mapping[str, object]) -> str:
    """A file with these values of its constants; everything else stays as it is."""
    lines = text.splitlines()
    for name, node in reversed(list(_constants(ast.parse(text)))):
        value = node.value
        if name not in values or value is None or ast.literal_eval(value) == values[name]:
            continue
        start, end = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        before, after = lines[start][: value.col_offset], lines[end][value.end_col_offset :]
        lines[start : end + 1] = f"{before}{_as_python(values[name])}{after}".splitlines()
    return "\n".join(lines) + "\n"


def _as_python(value: object, margin: str = "") -> str:
    """A value as Python writes it, text in double quotes; what is long goes over lines."""
    if isinstance(value, str):
        return json.dumps(value)
    if not isinstance(value, Mapping | list | tuple):
        return repr(value)
    brackets = "{}" if isinstance(value, Mapping) else "[]" if isinstance(value, list) else "()"
    inner = margin + "    "
    parts = (
        [f"{_as_python(key)}: {_as_python(value[key], inner)}" for key in value]
        if isinstance(value, Mapping)
        else [_as_python(part, inner) for part in value]
    )
    comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
    line = brackets[0] + ", ".join(parts) + comma + brackets[1]
    if not (parts and isinstance(value, Mapping)) and len(line) + len(margin) <= _WIDTH:
        return line
    return brackets[0] + "".join(f"\n{inner}{part}," for part in parts) + f"\n{margin}{brackets[1]}"


def _with_parts(text: str) -> str:
    """A file with the functions of `parts.py` that it imports, and all they need, at its end."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    wanted = [name for node in imports if _is_parts(node) for name in _bound(node)]
    parts_text, parts = _parts()
    definitions = {
        node.name: node for node in parts.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    needed = _needed(wanted, definitions)
    sources = [
        ast.get_source_segment(parts_text, node) or ""
        for name, node in definitions.items()
        if name in needed
    ]
    last = max(node.end_lineno or 0 for node in imports)
    body = "\n".join(text.splitlines()[last:]).strip("\n")
    used = _names(ast.parse(body)).union(*(_names(definitions[name]) for name in needed))
    own = [node for node in (*imports, *parts.body) if not _is_parts(node)]
    head = text[: text.index("from __future__")]
    block = head + _import_block(own, used)
    return "\n\n\n".join([f"{block}\n\n{body}", *sources]) + "\n"


@cache
def _parts() -> tuple[str, ast.Module]:
    text = (_FOLDER / f"{_PARTS}.py").read_text(encoding="utf-8")
    return text, ast.parse(text)


def _needed(
    wanted: Iterable[str], definitions: Mapping[str, ast.FunctionDef | ast.ClassDef]
) -> set[str]:
    needed: set[str] = set()
    rest = [name for name in wanted if name in definitions]
    while rest:
        name = rest.pop()
        if name not in needed:
            needed.add(name)
            rest += [other for other in _names(definitions[name]) if other in definitions]
    return needed


def _is_parts(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == _PARTS


def _bound(node: ast.stmt) -> list[str]:
    """Names that an import binds."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return []
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _import_block(nodes: Iterable[ast.stmt], used: set[str]) -> str:
    """The imports whose names are used, sorted: Python's own first."""
    plain: set[str] = set()
    by_module: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            plain |= {alias.name for alias in node.names if alias.name.partition(".")[0] in used}
        elif isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__"):
            names = {ast.unparse(alias) for alias in node.names} & used
            by_module.setdefault(str(node.module), set()).update(names)
    statements = [(name, f"import {name}") for name in sorted(plain)]
    statements += [
        (module, f"from {module} import {', '.join(sorted(names))}")
        for module, names in sorted(by_module.items())
        if names
    ]
    own = [text for module, text in statements if _is_of_python(module)]
    others = [text for module, text in statements if not _is_of_python(module)]
    groups = [["from __future__ import annotations"], own, others]
    return "\n\n".join("\n".join(group) for group in groups if group)


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


# Targets


def target_of(
    model: Model,
    method: str | None,
    settings: RecipeSettings = AS_IT_IS,
    folder: Path | None = None,
) -> str:
    """The TARGET of a rendered step, written to a folder (of outlay's own without one).

    The same step has the same path, so that a trace of it can be kept.
    """
    text = rendered_step(model, method, settings)
    name = re.sub(r"[^\w.-]+", "-", f"{model.name}-{recipe_for(model, method).method}").strip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    place = (folder or data_folder() / "recipes") / f"{name[-80:]}-{digest}"
    try:
        path = _written(place, text)
    except (OSError, InputError):
        if folder is not None:
            raise
        path = _written(_passing_folder() / place.name, text)  # nothing can be kept here
    return f"{path}:{_FUNCTION}"


def _written(folder: Path, text: str) -> Path:
    path = folder.absolute() / "step.py"
    data = text.encode()
    if not path.is_file() or path.read_bytes() != data:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return path


@cache
def _passing_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="outlay-recipes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def named_target(
    text: str,
    method: str | None = None,
    settings: RecipeSettings = AS_IT_IS,
    *,
    trust_remote_code: bool = False,
) -> str:
    """A TARGET as users write it: a model's name becomes its rendered step, others stay.

    Without a method the model's usual one; a bundled profile without one stays a profile. A method
    or settings for what is no model are refused; so is a name that is neither of anything.
    """
    is_plain = method is None and not settings.values
    if is_plain and text in bundled_profiles():
        return text
    if names_model(text):
        model = find_model(text, trust_remote_code=trust_remote_code)
        check_packages(model, method, settings)
        return target_of(model, method, settings)
    if not is_plain:
        _check_name(text)
        raise InputError(
            f"{text} has no methods or settings.",
            why="They are for a model by its name; this is a step, a profile or a measurement.",
            fix="Leave out --method and --set, or name a model: `outlay recipe models`.",
        )
    _check_name(text)
    return text


def _check_name(text: str) -> None:
    """Raise where a text is no path and nobody's name."""
    looks_like_path = any(mark in text for mark in (".py", ".json", ".gz", "/", "\\", ":", " -- "))
    if looks_like_path or Path(text).exists() or text in bundled_profiles():
        return
    known = [*(model.name for model in bundled_models()), *bundled_profiles()]
    raise NotKnown(
        "model or profile",
        text,
        known,
        fix="`outlay recipe models` lists the bundled models, `outlay profiles` the profiles; "
        f"{OTHER_NAMES}",
    )


# Packages

_PACKAGES: Mapping[str, tuple[str, ...]] = {"lora": ("peft",), "qlora": ("peft", "bitsandbytes")}
"""What a method is built on, besides the library of the model."""
_PACKAGES_OF_LIBRARY: Mapping[Library, tuple[str, ...]] = {
    "transformers": ("transformers",),
    "timm": ("timm",),
    "torchvision": ("torchvision",),
    "diffusers": ("diffusers",),
    "ultralytics": ("ultralytics",),
    "torch": ("torch",),
}


def check_packages(model: Model, method: str | None, settings: RecipeSettings = AS_IT_IS) -> None:
    """Raise where a step cannot be traced for want of a package, with the command that gets it."""
    recipe = recipe_for(model, method)
    values = _values_for(model, recipe, settings)
    wanted = ["torch", *_PACKAGES_OF_LIBRARY[model.library], *_PACKAGES.get(recipe.method, ())]
    if "8bit" in _spelling(values.get("optimizer", "")):
        wanted.append("bitsandbytes")
    if values.get("optimizer") == "adafactor":
        wanted.append("transformers")
    missing = [name for name in dict.fromkeys(wanted) if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            f"To trace {model.name} by {recipe.method} needs {' and '.join(missing)}.",
            fix=f"pip install {' '.join(missing)}",
        )


# Bundled profiles


def profile_name(
    model: Model, method: str | None, settings: RecipeSettings = AS_IT_IS
) -> tuple[str, int | None]:
    """What the bundled profile of a step is called, if there is one, and the tokens of a sample.

    `find_profile` finds it, where its name is among `bundled_model_profiles`.
    """
    recipe = recipe_for(model, method)
    values = _values_for(model, recipe, settings)
    tokens = values.pop("tokens", None)
    changed = {
        name: value for name, value in values.items() if value != recipe.constant(name).default
    }
    length = tokens if isinstance(tokens, int) else None
    return step_name(model.name, recipe.method, changed), length
