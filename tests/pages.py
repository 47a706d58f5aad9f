"""The pages of the documentation, taken apart: sections, blocks of code, and the files that they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# A path in backticks, alone on its line, is the name of the block below it.
_NAME = re.compile(r"`([\w./-]+)`:")


@dataclass(frozen=True)
class Block:
    """A block of code; ``name`` is the file that it is the content of."""

    language: str
    text: str
    line: int
    name: str | None


@dataclass
class Section:
    """What stands below a heading. ``key`` is like ``packs.md: Get one``."""

    key: str
    blocks: list[Block] = field(default_factory=list)

    def of(self, language: str) -> list[Block]:
        """The blocks in this language."""
        return [block for block in self.blocks if block.language == language]

    @property
    def commands(self) -> list[str]:
        """The commands of its ``sh`` blocks, without comments."""
        lines = [line for block in self.of("sh") for line in block.text.splitlines()]
        return [bare for line in lines if (bare := re.sub(r"\s+#.*$", "", line).strip())]


def sections(page: Path) -> Iterator[Section]:
    """The sections of a page that show any code. Raises ValueError for code outside of fences."""
    section, block, name, begun, before = Section(f"{page.name}:"), None, None, 0, ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is not None:
            if line == "```":
                text = "\n".join(block[1:]) + "\n"
                section.blocks.append(Block(block[0], text, begun, name))
                block = name = None
            else:
                block.append(line)
        elif line.startswith("```"):
            block, begun = [line[3:]], number
        elif line.startswith("#"):
            if section.blocks:
                yield section
            section = Section(f"{page.name}: {line.lstrip('# ')}")
        elif line.startswith("    ") and not before:
            raise ValueError(f"{page}:{number}: indented code has no language: use a fence")
        elif line:
            found = _NAME.fullmatch(line)
            name = found[1] if found else None
        before = line
    if block is not None:
        raise ValueError(f"{page}:{begun}: the block has no end")
    if section.blocks:
        yield section
