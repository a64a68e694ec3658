"""Magics for notebooks: `%load_ext outlay`, then `%%probe` over a cell or `%probe statement`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from outlay.errors import ExtraMissing, InputError, OutlayError
from outlay.files import check_folder
from outlay.inline.block import BlockProbe, check_above_zero
from outlay.probe.stages import parse_limits

_OPTION = re.compile(r"\s*--([a-z-]+)(?:=|\s+|$)(\"[^\"]*\"|'[^']*'|\S*)")
_OPTIONS = ("steps", "for", "until", "batch-size", "samples-per-step", "price", "json")
RESULT = "_probe"
"""The name in the notebook that the measurement gets."""


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the magics; IPython calls this at `%load_ext outlay`."""
    usage_error = _usage_error()

    def probe(line: str, cell: str | None = None) -> Any:
        """Probe a cell or a statement until enough was seen, and stop it.

        %%probe [--steps N] [--for 5m] [--until 2%] [--batch-size N] [--price USD/H] [--json OUT]
        """
        try:
            return _probe(shell, line, cell)
        except OutlayError as error:
            raise usage_error(str(error)) from error

    shell.register_magic_function(probe, magic_kind="line_cell", magic_name="probe")


def _usage_error() -> type[Exception]:
    """What IPython shows as one line, without a traceback."""
    try:
        from IPython.core.error import UsageError
    except ImportError as error:
        raise ExtraMissing("The magics need IPython: pip install ipython.") from error
    error_class: type[Exception] = UsageError
    return error_class


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("probe", None)


def _probe(shell: Any, line: str, cell: str | None) -> Any:
    options, statement = _split_options(line)
    if cell is not None and statement:
        raise InputError(f"{statement!r} is no option of %%probe.", fix=_option_list())
    if not (cell or statement).strip():
        raise InputError("There is nothing to probe.", fix="Write %probe train() or a cell.")
    if "json" in options:
        check_folder(Path(options["json"]))
    block = _block(options, "%%probe" if cell is not None else f"%probe {statement}")
    code = _Code(shell, cell if cell is not None else statement)
    try:
        with block:
            code.run()
    finally:
        _show(shell, block, options.get("json"))
    return code.value


def _split_options(line: str) -> tuple[dict[str, str], str]:
    """Options at the beginning of a line, and what follows them."""
    options = {}
    while match := _OPTION.match(line):
        name, value = match[1], match[2].strip("\"'")
        if name not in _OPTIONS or not value:
            raise InputError(f"--{name} {value}".rstrip() + " is no option.", fix=_option_list())
        options[name] = value
        line = line[match.end() :]
    return options, line.strip()


def _option_list() -> str:
    return "Options, each with a value: " + ", ".join(f"--{name}" for name in _OPTIONS) + "."


def _block(options: dict[str, str], command: str) -> BlockProbe:
    steps, batch_size = _count(options, "steps"), _count(options, "batch-size")
    samples_per_step = _count(options, "samples-per-step")
    check_above_zero(steps=steps, batch_size=batch_size, samples_per_step=samples_per_step)
    return BlockProbe(
        parse_limits(
            steps=steps,
            duration=options.get("for"),
            until=options.get("until"),
            price=options.get("price"),
        ),
        batch_size=batch_size,
        samples_per_step=samples_per_step,
        command=(command,),
        saved_by="--json OUT.json",
    )


def _count(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise InputError(f"--{name} {text!r} is no number.", fix=f"Write for example --{name} 100.")
    return int(text)


def _show(shell: Any, block: BlockProbe, path: str | None) -> None:
    shell.user_ns[RESULT] = block.measurement
    if path is not None:
        block.save(path)
    block.report()


class _Code:
    """A cell, run in the notebook's own names; the value of its last expression is kept."""

    def __init__(self, shell: Any, text: str) -> None:
        self._shell = shell
        self.value: Any = None
        source = shell.transform_cell(text)
        self._file = shell.compile.cache(source)
        tree = shell.transform_ast(ast.parse(source, self._file))
        self._last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
            self._last = ast.Expression(tree.body.pop().value)
        self._tree = tree

    def run(self) -> None:
        """Run it."""
        names = self._shell.user_ns
        exec(compile(self._tree, self._file, "exec"), names)
        if self._last is not None:
            self.value = eval(compile(self._last, self._file, "eval"), names)
