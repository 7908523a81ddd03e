"""Rust sources as text for the checks beside this file: without comments and tests, with the places of functions.

No parser: brackets are counted in text whose comments, strings and characters are blanked, so offsets and lines stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# in this order, a token of Rust whose inside is no code
_TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>b?r(?P<hashes>#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*")|b?\'(?:\\[^\n]+?|[^\'\\\n])\'',
    re.DOTALL,
)
_TEST_ITEM = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*")
_PAIRS = {"{": "}", "(": ")", "[": "]"}


def blank(text: str, *, strings: bool) -> str:
    """The text without comments (and without what strings and characters hold, if `strings`); offsets and line breaks stay."""

    def spaces(found: re.Match[str]) -> str:
        keep = found["comment"] is None and not strings
        return found[0] if keep else re.sub(r"[^\n]", " ", found[0])

    return _TOKEN.sub(spaces, text)


def closing(text: str, at: int) -> int:
    """Offset behind the bracket that closes the one at `at`. The text must be blanked."""
    opening, depth = text[at], 0
    for found in re.compile(f"[\\{opening}\\{_PAIRS[opening]}]").finditer(text, at):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return found.end()
    return len(text)


def end_of_item(text: str, at: int) -> int:
    """Offset behind the item that begins at `at`: its closing brace, or its semicolon."""
    while at < len(text):
        if text[at] in "([":
            at = closing(text, at)
        elif text[at] == "{":
            return closing(text, at)
        elif text[at] == ";":
            return at + 1
        else:
            at += 1
    return at


@dataclass
class Function:
    """A function that is defined in a file."""

    name: str
    owner: str | None  # the type of its impl block
    public: bool  # `pub`, not `pub(crate)`
    of_trait: bool  # of a trait, or of an impl of one
    start: int
    end: int


class Source:
    """One file: `code` has neither comments, strings nor tests, and what `use .. as ..` renames under its own name; `text` has its strings."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        raw = path.read_text()
        self.code, self.text = blank(raw, strings=True), blank(raw, strings=False)
        for item in list(_TEST_ITEM.finditer(self.code)):
            self._cut(item.start(), end_of_item(self.code, item.end()))
        imports = "".join(re.findall(r"^ *use [^;]*;", self.code, re.MULTILINE))
        self.imported = set(re.findall(r"\w+", imports))
        for found in re.findall(r"\b(\w+) as ([a-zA-Z]\w*)\b", imports):
            self.code = re.sub(rf"\b{found[1]}\b", found[0], self.code)
        self.impls = [
            (found.start(), end_of_item(self.code, found.start()), found["type"], found["trait"] is not None)
            for found in re.finditer(
                r"^ *(?:unsafe )?impl\b(?:<[^{]*?>)?\s+(?:(?P<trait>[^{;]+?)\s+for\s+)?(?:&\s*)?(?:mut )?(?:[\w]+::)*(?P<type>\w+)",
                self.code,
                re.MULTILINE,
            )
        ]
        self.traits = [(found.start(), end_of_item(self.code, found.start())) for found in re.finditer(r"\btrait \w+", self.code)]
        self.functions = [
            self._function(found) for found in re.finditer(r"(?P<pub>\bpub(?:\([^)]*\))?\s+)?(?:(?:const|unsafe|extern) )*\bfn\s+(?P<name>\w+)", self.code)
        ]

    def _cut(self, start: int, end: int) -> None:
        gap = re.sub(r"[^\n]", " ", self.code[start:end])
        self.code = self.code[:start] + gap + self.code[end:]
        self.text = self.text[:start] + gap + self.text[end:]

    def _function(self, found: re.Match[str]) -> Function:
        owner = self.owner(found.start())
        of_trait = any(start < found.start() < end for start, end in self.traits) or (owner is not None and owner[1])
        visibility = (found["pub"] or "").strip()
        return Function(found["name"], owner[0] if owner else None, visibility == "pub", of_trait, found.start(), end_of_item(self.code, found.start()))

    def owner(self, at: int) -> tuple[str, bool] | None:
        """The type of the impl block around an offset, and whether the block implements a trait."""
        around = [(start, kind, of_trait) for start, end, kind, of_trait in self.impls if start < at < end]
        return max(around)[1:] if around else None

    def line(self, at: int) -> int:
        """Line number of an offset."""
        return self.code.count("\n", 0, at) + 1


def product(root: Path, crates: list[str]) -> list[Source]:
    """The sources of these crates that ship: no tests, no benches, no examples."""
    found = []
    for crate in crates:
        for path in sorted((root / "rust" / crate / "src").rglob("*.rs")):
            name = path.relative_to(root).as_posix()
            if path.stem != "tests" and "/tests/" not in name:
                found.append(Source(path, name))
    return found
