"""The JSON schemas of the workload file and of every `--json` document, made from their types.

A dataclass is an object that has just its keys (`outlay.files.to_json`): all of them are required,
and no others are taken. Whole numbers are counts, 0 or more. What the source says below a field or
in a property's docstring describes the key; a class's docstring describes the object.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from outlay.files import json_properties
from outlay.measurement.file import MeasurementDocument, range_of
from outlay.report import documents
from outlay.report.advise import AdviseDocument
from outlay.report.batches import BatchesDocument
from outlay.report.bench_report import BenchDocument
from outlay.report.build import BuildDocument, KnownPartsDocument
from outlay.report.calibrate import CalibrateDocument
from outlay.report.comparison import CurvesDocument, DifferenceDocument
from outlay.report.fit import FitDocument
from outlay.report.price_report import (
    ChangesDocument,
    CheapOffersDocument,
    CheckDocument,
    CompareDocument,
    HistoryDocument,
    PricesImportDocument,
    RefreshDocument,
)
from outlay.report.question import MethodsDocument
from outlay.report.recipes import ModelsDocument, RecipesDocument, StepDocument
from outlay.report.run_report import LaunchDocument, LogDocument, RunsDocument
from outlay.run.progress import RunStatus
from outlay.trace.profile import Profile

Schema = dict[str, Any]
DOCUMENTS: dict[str, Any] = {
    "plan": documents.PlanDocument,
    "vary": CurvesDocument,
    "methods": MethodsDocument,
    "diff": DifferenceDocument,
    "advise": AdviseDocument,
    "offers": documents.OffersDocument,
    "prices-refresh": RefreshDocument,
    "prices-watch": CheapOffersDocument,
    "gpus": documents.GpusDocument,
    "predict": documents.PredictionsDocument,
    "calibrate": CalibrateDocument,
    "fit": FitDocument,
    "build": BuildDocument | KnownPartsDocument,
    "host": documents.HostDocument,
    "trace": documents.TraceDocument,
    "profiles": documents.ProfilesDocument,
    "recipe-models": ModelsDocument,
    "recipe-list": RecipesDocument,
    "recipe-show": StepDocument,
    "measurement": MeasurementDocument,
    "batches": BatchesDocument,
    "prices-compare": CompareDocument,
    "prices-history": HistoryDocument,
    "prices-changes": ChangesDocument,
    "prices-import": PricesImportDocument,
    "check": CheckDocument,
    "launch": LaunchDocument,
    "bench": BenchDocument,
    "runs": RunsDocument,
    "logs": LogDocument,
    "watch": RunStatus,
}
_COMMANDS = {
    "vary": "plan --vary",
    "methods": "plan --method all",
    "measurement": "probe",
    "batches": "probe --find-batch",
}
"""The commands of documents that have another name."""
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LATER = ("is_compiled", "stopped_for")
"""Keys that older measurements of the same schema do not have."""
_ATOMS: dict[Any, Schema] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number"},
    str: {"type": "string"},
    # within a measurement, as `outlay trace --save` writes it
    Profile: {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["schema", "kind"],
    },
}


def schema(name: str) -> Schema:
    """One schema by name."""
    if name == "workload":
        from outlay.workload.tables import WorkloadFile

        return {"$schema": _DRAFT, **WorkloadFile.model_json_schema(mode="validation")}
    title = f"outlay {_COMMANDS.get(name, name.replace('-', ' '))} --json"
    definitions: dict[str, Schema] = {}
    whole = _part(DOCUMENTS[name], definitions)
    if "$ref" in whole:
        whole = definitions.pop(_name(whole["$ref"]))
    if name == "measurement":
        _limit(whole, definitions)
        del whole["properties"]["status"]["minimum"]  # a signal is negative
    document = {"$schema": _DRAFT, "title": title, "type": "object", **whole}
    return {**document, "$defs": definitions} if definitions else document


def _part(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a type; those of dataclasses go into the definitions."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _ATOMS:
        return dict(_ATOMS[hint])
    if isinstance(hint, type) and is_dataclass(hint):
        name = hint.__name__.removesuffix("Document")
        if name not in definitions:
            definitions[name] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin is Literal:
        return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
    parts = [_part(part, definitions) for part in inner if part is not ...]
    if origin in (Union, UnionType):
        return {"anyOf": parts}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": parts[1]}
    if origin is tuple and ... not in inner:
        count = len(parts)
        return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count}
    assert origin in (tuple, Sequence), f"no schema for {hint}"
    return {"type": "array", "items": parts[0]}


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a dataclass: its fields and the properties that are written."""
    properties = dict(_properties(kind, definitions))
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__),
        "properties": properties,
        "required": [key for key in properties if key not in _LATER],
        "additionalProperties": False,
    }


def _properties(kind: Any, definitions: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    hints, words = get_type_hints(kind), _descriptions(kind)
    for key in fields(kind):
        if "flatten" in key.metadata:
            yield from _properties(hints[key.name], definitions)
        else:
            yield key.name, _part(hints[key.name], definitions) | words.get(key.name, {})
    for name in json_properties(kind):
        getter = getattr(kind, name).fget
        returned = get_type_hints(getter)["return"]
        yield name, _part(returned, definitions) | _description(getter.__doc__)


def _descriptions(kind: Any) -> dict[str, Schema]:
    """What the source of a class says below each of its fields."""
    descriptions: dict[str, Schema] = {}
    for base in reversed(kind.__mro__[:-1]):
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, below in pairwise(definition.body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    descriptions[name] = _description(text)
    return descriptions


def _description(text: str) -> Schema:
    """As a key's description: on one line, and None is null."""
    return {"description": " ".join(text.split()).replace("None", "null")}


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _limit(part: Schema, definitions: dict[str, Schema], key: str = "") -> None:
    """Set the ends of all numbers in a measurement, beyond which the reader refuses a file."""
    if "$ref" in part:
        _limit(definitions[_name(part["$ref"])], definitions, key)
    for name, inner in part.get("properties", {}).items():
        _limit(inner, definitions, f"{key}.{name}" if key else name)
    items = [part["items"]] if "items" in part else []
    for inner in (*items, *part.get("prefixItems", ()), *part.get("anyOf", ())):
        _limit(inner, definitions, key)
    if part.get("type") in ("number", "integer"):
        limits = range_of(key)
        ends = {"minimum": limits.low, "exclusiveMinimum": limits.above, "maximum": limits.high}
        part |= {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}
