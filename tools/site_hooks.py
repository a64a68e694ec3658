"""What the documentation site has besides `docs/`: CONTRIBUTING.md and CHANGELOG.md, as pages.

mkdocs calls `on_files` (see `mkdocs.yml`). Their links are those of the project's root: links into
`docs/` are kept, of others only the words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
PAGES = {"contributing.md": ROOT / "CONTRIBUTING.md", "changelog.md": ROOT / "CHANGELOG.md"}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def page_text(source: Path) -> str:
    """A root page with links as they are on the site."""
    return _LINK.sub(_on_site, source.read_text(encoding="utf-8"))


def _on_site(link: re.Match[str]) -> str:
    words, target = link.groups()
    if target.startswith("https://"):
        return link[0]
    for name, source in PAGES.items():
        if target == source.name:
            return f"[{words}]({name})"
    if target.startswith("docs/"):
        return f"[{words}]({target.removeprefix('docs/')})"
    return words


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All files of the site, with the pages from the project's root."""
    from mkdocs.structure.files import File

    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=page_text(source)))
    return files
