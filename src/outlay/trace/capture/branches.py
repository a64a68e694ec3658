"""What code does with an answer that only the data could give: which branch of it does the work.

`Answers` looks at the statement that asks. It takes the branch that does not raise; where nothing
is known of the answer, the one that does something rather than skip it: an answer that leaves work
out would make a step look cheaper than it is. A `while` that asks ends after `TURNS` turns, one of
torch's that initialises parameters at once.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from outlay.trace.capture.wrappers import NotTraceable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType


TURNS = 10
# Assumes: a loop that ends by values takes ten turns (a guess: solvers differ by far).
_MOST_READS = 100_000
"""Reads of one line in one `while` after which it is taken to wait for values without end."""

_OUTLAY = str(Path(__file__).parents[2]) + os.sep
_TORCH = str(Path(torch.__file__).parent) + os.sep
_PLUMBING = tuple(
    _TORCH + name.replace("/", os.sep)
    for name in (
        *("_subclasses/", "_dynamo/", "utils/_python_dispatch", "utils/_device", "utils/_stats"),
        *("_tensor.py", "_ops.py", "overrides.py", "_compile.py"),
    )
)
"""What stands between an operator and its dispatch."""
_INITIALISATION = f"{_TORCH}nn{os.sep}init.py"
"""Draws values of a truncated distribution anew until none is out of bounds."""
# Assumes: hardly any is: bounds are mostly a hundred standard deviations away (2 and 0.02).
_LARGE = 10**9
_ENDS = ("exit", "_exit", "abort", "quit")

_BETWEEN = ("CACHE", "COPY", "NOP", "TO_BOOL", "UNARY_NOT")
"""What may stand between a value and the jump on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Where a value is used as an answer."""

    raises_on: bool | None = None
    """The answer on which the code raises, if on one of them."""
    works_on: bool | None = None
    """The answer on which it does the more work; None where that cannot be told."""
    ends_while_on: bool | None = None
    """The answer that ends a `while` which asks, or which only ends by it."""
    is_compared: bool = False
    """Whether the value is a number that is compared: yes is a large one, no a small one."""
    turns: int = TURNS
    """How often a `while` goes on: where it is asked at its end, once less."""
    place: tuple[int, int] = (0, 0)
    """Line and column of what is asked; Python asks at two instructions before and in a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that only the data could give."""

    value: bool | float
    why: str = ""
    """What speaks for it, beside what is likely."""
    is_of_loop: bool = False
    """Whether it lets a loop go on that only values would end, or ends it."""


class Answers:
    """Gives the answers of one trace, and counts the turns of loops that ask for them."""

    def __init__(self) -> None:
        self._turns: Counter[tuple[int, CodeType, tuple[int, int]]] = Counter()

    def answer(self, likely: bool | None, otherwise: bool) -> Answer:
        """The answer to a question.

        `likely` is it where something is known, `otherwise` where even the code says nothing.
        """
        frame = _asking_frame()
        question = None if frame is None else _question(frame.f_code, frame.f_lasti)
        plain = Answer(value=otherwise if likely is None else likely)
        if frame is None or question is None or question.is_compared:
            return plain
        if question.ends_while_on is not None:
            return self._turn(frame, question, likely)
        if question.raises_on is not None:
            return Answer(value=not question.raises_on, why="as it would raise otherwise")
        if likely is not None or question.works_on is None:
            return plain
        return Answer(value=question.works_on, why="on which it does more")

    def number(self, likely: float | None, otherwise: float) -> Answer:
        """A number that is read; one may decide a branch, too."""
        frame = _asking_frame()
        question = None if frame is None else _question(frame.f_code, frame.f_lasti)
        if frame is None or question is None:
            self._count_read(frame)
            return Answer(value=otherwise if likely is None else likely)
        if not question.is_compared:
            yes = self.answer(None if likely is None else bool(likely), bool(otherwise))
            return replace(yes, value=(likely or 1) if yes.value else 0)
        if question.ends_while_on is None:
            return _compared_number(question, likely, otherwise)
        large = self._turn(frame, question, None)
        value = _LARGE if question.ends_while_on else likely or 1
        return replace(large, value=value if large.value else 0)

    def count_known(self) -> None:
        """Count a question that was answered by what is known: it may be a loop's first turn."""
        frame = _asking_frame()
        question = None if frame is None else _question(frame.f_code, frame.f_lasti)
        if frame is not None and question is not None and question.ends_while_on is not None:
            self._turns[id(frame), frame.f_code, question.place] += 1

    def _turn(self, frame: FrameType, question: Question, likely: bool | None) -> Answer:
        key = id(frame), frame.f_code, question.place
        ends_on = bool(question.ends_while_on)
        if frame.f_code.co_filename == _INITIALISATION:
            return Answer(value=ends_on)
        self._turns[key] += 1
        turn = self._turns[key]
        if turn > question.turns or (turn > 1 and likely == ends_on):
            del self._turns[key]
            return Answer(value=ends_on, is_of_loop=True)
        return Answer(value=not ends_on, is_of_loop=True)

    def _count_read(self, frame: FrameType | None) -> None:
        """Count a number that a `while` reads; one that reads without end cannot be traced."""
        if frame is None or not _is_in_while(frame.f_code, frame.f_lasti):
            return
        key = id(frame), frame.f_code, (frame.f_lasti, -1)
        self._turns[key] += 1
        if self._turns[key] > _MOST_READS:
            raise NotTraceable(
                "This loop waits for values, and a trace has none.",
                fix="Give the loop a largest number of turns.",
            )


def _compared_number(question: Question, likely: float | None, otherwise: float) -> Answer:
    """A number that an `if` compares: a large or a small one, as the branches have it."""
    if likely is not None:
        return Answer(value=likely)
    if question.raises_on is not None:
        return Answer(value=int(not question.raises_on), why="as it would raise otherwise")
    if question.works_on is not None:
        return Answer(value=int(question.works_on), why="on which it does more")
    return Answer(value=otherwise)


def _asking_frame() -> FrameType | None:
    """The innermost frame that is neither outlay's nor between an operator and its dispatch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_OUTLAY, *_PLUMBING)):
        frame = frame.f_back
    return frame


# The statement that asks


@cache
def _question(code: CodeType, instruction: int) -> Question | None:
    """What is asked at an instruction; None where its value is not taken as yes or no."""
    place: ast.AST | None = _place(code, instruction)
    if not isinstance(place, ast.expr):
        return None
    asked = place.lineno, place.col_offset
    node: ast.AST = place
    parents, negated, compared = _parents(code.co_filename), False, False
    while True:
        parent = parents.get(node)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            negated = not negated
        elif isinstance(parent, ast.Compare) and len(parent.ops) == 1 and node is place:
            is_above = isinstance(parent.ops[0], ast.Gt | ast.GtE)
            is_below = isinstance(parent.ops[0], ast.Lt | ast.LtE)
            if not is_above and not is_below:
                return None
            compared, negated = True, is_above != (node is parent.left)
        elif isinstance(parent, ast.If | ast.While | ast.Assert | ast.IfExp):
            question = _asked_by(parent, parents, negated) if parent.test is node else None
            if question is None:
                return None
            return replace(question, is_compared=compared, place=asked)
        elif isinstance(parent, ast.comprehension):
            return Question(works_on=not negated) if node in parent.ifs and not compared else None
        elif not isinstance(parent, ast.BoolOp | ast.NamedExpr) and not _is_cast(parent):
            return None
        if parent is None:
            return None
        place = parent if _is_cast(parent) and node is place else place
        node = parent


def _asked_by(
    statement: ast.If | ast.While | ast.Assert | ast.IfExp,
    parents: dict[ast.AST, ast.AST],
    negated: bool,
) -> Question:
    if isinstance(statement, ast.Assert):
        return Question(raises_on=negated)
    if isinstance(statement, ast.IfExp):
        return Question()
    if isinstance(statement, ast.While):
        return Question(ends_while_on=negated)
    body, other = _rank(statement.body), _rank(statement.orelse)
    is_end = isinstance(statement.body[-1], ast.Break | ast.Return)
    if is_end and _endless_loop(statement, parents) is not None:
        return Question(ends_while_on=not negated, turns=TURNS - 1)
    if 0 in (body[0], other[0]) and body[0] != other[0]:
        return Question(raises_on=(body[0] == 0) != negated)
    return Question(works_on=None if body == other else (body > other) != negated)


def _rank(branch: Sequence[ast.stmt]) -> tuple[int, int]:
    """How much a branch does: raising, skipping, nothing, work; then by its length."""
    if not branch:
        return 2, 0
    last = branch[-1]
    if isinstance(last, ast.Raise) or _is_end(last):
        return 0, 0
    if all(isinstance(part, ast.Continue | ast.Break | ast.Pass) for part in branch):
        return 1, 0
    if isinstance(last, ast.Continue | ast.Break) or (
        isinstance(last, ast.Return) and not _has_call(last)
    ):
        return 1, 1
    return 3, sum(1 for part in branch for _ in ast.walk(part))


def _is_end(statement: ast.stmt) -> bool:
    """Whether a statement ends the program."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else None
    return (call.func.id if isinstance(call.func, ast.Name) else name) in _ENDS


def _has_call(statement: ast.stmt) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(statement))


def _is_cast(node: ast.AST | None) -> bool:
    """`bool(x)` and the like, which are as good as x."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("bool", "int", "float")
        and len(node.args) == 1
    )


def _endless_loop(statement: ast.stmt, parents: dict[ast.AST, ast.AST]) -> ast.While | None:
    """The `while True` that a statement is in, if no other loop or function is between them."""
    node = parents.get(statement)
    while node is not None and not isinstance(node, ast.For | ast.AsyncFor | ast.FunctionDef):
        if isinstance(node, ast.While):
            return node if isinstance(node.test, ast.Constant) else None
        node = parents.get(node)
    return None


@cache
def _is_in_while(code: CodeType, instruction: int) -> bool:
    node: ast.AST | None = _place(code, instruction)
    parents = _parents(code.co_filename)
    while node is not None and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(node, ast.While):
            return True
        node = parents.get(node)
    return False


def _place(code: CodeType, instruction: int) -> ast.expr | None:
    """The smallest expression that an instruction belongs to."""
    unit = instruction // 2
    # A jump on a value has the place of the whole statement; what made the value comes before.
    while unit and ("JUMP" in _operation(code, unit) or _operation(code, unit) in _BETWEEN):
        unit -= 1
    positions = next(islice(code.co_positions(), unit, None), (None,) * 4)
    line, end_line, start, end = (-1 if number is None else number for number in positions)
    found: ast.expr | None = None
    for node in _expressions(code.co_filename).get(line, ()):
        first, last = (
            (node.lineno, node.col_offset),
            (node.end_lineno or 0, node.end_col_offset or 0),
        )
        if first <= (line, start) and (end_line, end) <= last:
            found = node  # they come from the outside in
    return found


def _operation(code: CodeType, unit: int) -> str:
    return dis.opname[code.co_code[2 * unit]]


@cache
def _tree(filename: str) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


@cache
def _parents(filename: str) -> dict[ast.AST, ast.AST]:
    tree = _tree(filename)
    if tree is None:
        return {}
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


@cache
def _expressions(filename: str) -> dict[int, list[ast.expr]]:
    """The expressions that reach over each line, larger ones first."""
    tree = _tree(filename)
    by_line: dict[int, list[ast.expr]] = {}
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.expr):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                by_line.setdefault(line, []).append(node)
    return by_line
