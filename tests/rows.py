"""One test for a whole table: it checks every row, and names each that fails with its reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest


def for_every(argument: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Run a test on each row, as one test that goes on after a row that fails.

    argument: the test's name for a row; where it is several, separated by commas, a row is a tuple.

    A test for each row would take milliseconds a row, where its check takes microseconds. What the
    test asks for besides the row (fixtures, cases) it gets as usual, the same for all rows.
    """
    table = list(rows)
    arguments = [name.strip() for name in argument.split(",")]

    def over_the_table(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def over_all_rows(**others: Any) -> None:
            __tracebackhide__ = True
            assert table, "the table has no rows"
            failures = []
            for row in table:
                values = row if len(arguments) > 1 else (row,)
                try:
                    test(**dict(zip(arguments, values, strict=True)), **others)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{row}\n{_reason(error, test)}")
            if failures:
                heading = f"{len(failures)} of {len(table)} rows fail"
                pytest.fail("\n".join([heading, *failures]), pytrace=False)

        signature = inspect.signature(test)
        kept = [it for name, it in signature.parameters.items() if name not in arguments]
        over_all_rows.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return over_all_rows

    return over_the_table


def _reason(error: BaseException, test: Callable[..., None]) -> str:
    """What went wrong at a row and where in the test, indented below the row."""
    file = inspect.getsourcefile(test)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    where = f"{Path(file or '').name}:{lines[-1]}: " if lines else ""
    return "\n".join(
        "    " + line for line in f"{where}{type(error).__name__}: {error}".splitlines()
    )
