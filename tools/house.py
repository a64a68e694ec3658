"""The source tree in figures: modules, lines, layers, names used twice, modules with one importer.

    python tools/house.py [FOLDER] [--names]     FOLDER: src/outlay; --names lists what is counted

A module that only one other imports may be a part of that one; a name used twice is two things to
confuse. tests/tools/test_house.py holds the tree to bounds.
"""

from __future__ import annotations

import ast
import statistics
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORT_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What there is to count in a package. Names of modules are without the package's own."""

    lines: Mapping[str, int]
    """Of every module."""
    other_lines: int
    """Of the `__init__` files."""
    importers: Mapping[str, frozenset[str]]
    """The modules that import each one."""
    module_names: Mapping[str, tuple[str, ...]]
    """Last part of the name, and the modules that have it."""
    class_names: Mapping[str, tuple[str, ...]]
    """Public classes, and the modules that define one of that name."""
    layers: int

    @property
    def at_root(self) -> list[str]:
        """Modules that are in no package."""
        return [name for name in self.lines if "." not in name]

    @property
    def short(self) -> list[str]:
        """Modules of few lines."""
        return [name for name, lines in self.lines.items() if lines < SHORT_LINES]

    @property
    def with_one_importer(self) -> list[str]:
        """Modules that might be a part of the only one that imports them."""
        return [name for name in self.lines if len(self.importers.get(name, ())) == 1]

    @property
    def module_names_used_twice(self) -> list[str]:
        """Names that several modules have."""
        return [name for name, modules in self.module_names.items() if len(modules) > 1]

    @property
    def class_names_used_twice(self) -> list[str]:
        """Names of public classes that mean several things."""
        return [name for name, modules in self.class_names.items() if len(modules) > 1]


def _is_in_package(path: Path) -> bool:
    """Whether a file is a module: files for users, such as recipes, are data."""
    return (path.parent / "__init__.py").is_file()


def house_of(folder: Path) -> House:
    """The figures of a package."""
    paths = [path for path in sorted(folder.rglob("*.py")) if _is_in_package(path)]
    name_of = {path: _name(path, folder) for path in paths}
    known = set(name_of.values())
    lines, other_lines = {}, 0
    importers: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for path, name in name_of.items():
        text = path.read_text()
        tree = ast.parse(text)
        for imported in _imports(tree, path, folder, known):
            importers[imported].add(name)
        if path.name == "__init__.py":
            other_lines += text.count("\n")
            continue
        lines[name] = text.count("\n")
        modules[path.stem].append(name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    return House(
        lines=lines,
        other_lines=other_lines,
        importers={name: frozenset(who) for name, who in importers.items()},
        module_names={name: tuple(where) for name, where in modules.items()},
        class_names={name: tuple(where) for name, where in classes.items()},
        layers=_layers(),
    )


def _name(path: Path, folder: Path) -> str:
    """Of a module or package, without the name of the folder itself."""
    return (
        ".".join(path.relative_to(folder).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip(".")
    )


def _imports(tree: ast.Module, path: Path, folder: Path, known: set[str]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever it does so."""
    package = folder.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(f"{package}."):
                    yield alias.name.removeprefix(f"{package}.")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parent = path.parents[node.level - 1]
                base = ".".join((*parent.relative_to(folder).parts, *filter(None, [node.module])))
            elif node.module == package or (node.module or "").startswith(f"{package}."):
                base = (node.module or "").removeprefix(package).lstrip(".")
            else:
                continue
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in known else base


def _layers() -> int:
    """Layers of the import contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return sum(len(contract["layers"]) for contract in contracts if contract["type"] == "layers")


def main(arguments: list[str]) -> None:
    """Print the figures."""
    folders = [argument for argument in arguments if not argument.startswith("--")]
    house = house_of(Path(folders[0]) if folders else ROOT / "src" / "outlay")
    total = sum(house.lines.values()) + house.other_lines
    print(f"{len(house.lines):6,} modules, {len(house.at_root)} of them at the root")
    print(f"{total:6,} lines, {statistics.median(house.lines.values()):.0f} in the median module")
    print(f"{house.layers:6,} layers of imports")
    lists = {
        f"modules under {SHORT_LINES} lines": house.short,
        "modules with one importer": house.with_one_importer,
        "module names used twice": house.module_names_used_twice,
        "class names used twice": house.class_names_used_twice,
    }
    for what, names in lists.items():
        print(f"{len(names):6,} {what}")
        if "--names" in arguments:
            print("       " + ", ".join(sorted(names)))


if __name__ == "__main__":
    main(sys.argv[1:])
