"""The pages that are written about outlay, and the code blocks in them."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("tools/**/*.md"),
        ROOT / "src/outlay/data/README.md",
        ROOT / "tests/reference/data/README.md",
    ]
)
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """The page's path in the project."""
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block in some language; `options` is what stands behind it: `skip="needs a GPU"`, or
    the file that it shows, `title="quotes.csv"`."""

    page: Path
    language: str
    options: str
    text: str

    @property
    def skipped(self) -> str:
        """Why its examples are not run; empty where they are."""
        return self._option("skip")

    @property
    def title(self) -> str:
        """The file that it shows; empty where it shows none."""
        return self._option("title")

    def _option(self, name: str) -> str:
        found = re.search(rf'{name}="([^"]*)"', self.options)
        return found[1] if found else ""


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page that name their language."""
    for language, options, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        yield Block(page=page, language=language, options=options.strip(), text=text)


def tool(name: str):
    """A script of tools/, as a module; those beside it can be imported by it."""
    if str(ROOT / "tools") not in sys.path:
        sys.path.append(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
