"""Models and recipes: tables, and the documents of `outlay recipe --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.models.model import Library, Model, Task
from outlay.models.recipe import Recipe, RecipeConstant, methods_for, profile_name, tasks_of
from outlay.report.console import Table, table
from outlay.report.documents import Document, copied
from outlay.trace.store import bundled_model_profiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDocument:
    """A bundled model."""

    name: str
    title: str
    """As its makers write it."""
    library: Library
    repository: str
    """On the hub; empty where it has none."""
    family: str
    task: Task
    context_tokens: int | None
    """The longest sequence it takes."""
    published_parameters: float
    """At the precision they are published in."""
    methods: Sequence[str]
    """The recipes it can be trained with, the usual one first."""
    bundled: Sequence[str]
    """Those of them whose step is bundled as the recipe has it: no torch is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsDocument(Document):
    """The bundled models."""

    models: Sequence[ModelDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDocument:
    """What can be set of a recipe."""

    name: str
    kind: str
    """As its file has it: `int`, `bool`, `float | None`, `tuple[str, ...]` or what it may be."""
    default: str | float | bool | Sequence[str] | None
    choices: Sequence[str]
    """What it may be; empty where any value of its kind will do."""
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDocument:
    """A recipe."""

    method: str
    title: str
    settings: Sequence[SettingDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipesDocument(Document):
    """The recipes."""

    recipes: Sequence[RecipeDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDocument(Document):
    """A recipe's file for a model."""

    model: str
    method: str
    text: str
    """The file."""


def models_document(models: Sequence[Model]) -> ModelsDocument:
    """`outlay recipe models --json`."""
    return ModelsDocument(
        models=[
            copied(
                ModelDocument,
                model,
                published_parameters=published_parameters(model),
                methods=methods_for(model),
                bundled=bundled_methods(model),
            )
            for model in models
        ]
    )


def recipes_document(recipes: Sequence[Recipe]) -> RecipesDocument:
    """`outlay recipe list --json`."""
    return RecipesDocument(
        recipes=[
            copied(RecipeDocument, recipe, settings=list(map(_setting, recipe.constants)))
            for recipe in recipes
        ]
    )


def _setting(constant: RecipeConstant) -> SettingDocument:
    return copied(SettingDocument, constant, choices=list(map(str, constant.choices)))


def published_parameters(model: Model) -> float:
    """The published count of parameters as a number."""
    fact = model.parameters
    return float(fact.text or 0) * float(fact.unit) if fact is not None else 0.0


def bundled_methods(model: Model) -> tuple[str, ...]:
    """The methods of a model whose step is bundled as the recipe has it."""
    known = bundled_model_profiles()
    return tuple(name for name in methods_for(model) if profile_name(model, name)[0] in known)


def _methods(model: Model) -> str:
    bundled = bundled_methods(model)
    return ", ".join(f"{name}*" if name in bundled else name for name in methods_for(model))


def _place(model: Model) -> str:
    """Where a model is that is on no hub."""
    if model.library == "torch":
        return model.config_source
    return f"{model.library}:{model.config.get('architecture', '')}"


def models_table(models: Sequence[Model], width: int) -> Table:
    """One row per model."""
    rows = [
        (
            model.name,
            _rounded(published_parameters(model)),
            model.task,
            _methods(model) or "no recipe yet",
            model.repository or _place(model),
        )
        for model in models
    ]
    names = ("name", "parameters", "for", "methods", "published as")
    return table(names, rows, width, right=("parameters",), drop=("published as",), wrap="methods")


def recipes_table(recipes: Sequence[Recipe], width: int) -> Table:
    """One row per recipe."""
    rows = [(recipe.method, recipe.title, _tasks(recipe)) for recipe in recipes]
    return table(("method", "what it does", "for"), rows, width, wrap="what it does")


def _tasks(recipe: Recipe) -> str:
    return ", ".join(tasks_of(recipe.method))


def settings_table(recipe: Recipe, width: int) -> Table:
    """One row per setting of a recipe."""
    rows = [
        (
            constant.name,
            _written(constant.default),
            ", ".join(map(str, constant.choices)) or constant.kind,
            constant.comment,
        )
        for constant in recipe.constants
    ]
    return table(("setting", "default", "may be", "what it is"), rows, width, wrap="what it is")


def _rounded(count: float) -> str:
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
