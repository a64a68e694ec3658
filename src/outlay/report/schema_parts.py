"""What JSON schemas are put together from."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}


def record(**properties: Schema) -> Schema:
    """An object that has just these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def or_null(inner: Schema) -> Schema:
    """That, or nothing."""
    return {"anyOf": [inner, {"type": "null"}]}


def list_of(item: Schema) -> Schema:
    """Any number of them."""
    return {"type": "array", "items": item}
