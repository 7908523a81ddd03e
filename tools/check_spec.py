"""Checks that every cited section of the rule book exists: `spec 7.4` is section 7.4 of docs/kafka, `spec 8.6 step 1` its step 8.6.1.

So do cited rows of docs/reliability.md, such as `reliability C1, C2`. Run by `make lint`. Exits 1 and names every citation that
leads nowhere, in the sources and within the book.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
BOOK = "docs/kafka"
TABLES = "docs/reliability.md"
FOLDERS = ("rust", "python", "tests", "judges", "benches", "docs", "tools", "fuzz")
SUFFIXES = {".rs", ".py", ".pyi", ".md", ".toml", ".json", ".js", ".java"}

# a heading or a step of a rule ends with its section number: {#7.4}, {#6.4.1}
ANCHOR = re.compile(r"\{#([^}\s]+)\}\s*$", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*(?://[/!]?|#+)", re.MULTILINE)
STEPS = r"(?:,?\s+(?:\w+\s+)?steps?\s+(\d+)(?:\s*-\s*(\d+))?)?"
CITED = re.compile(r"\bspec(?:ification)?,?\s+(?:sections?\s+)?(?=\d)", re.IGNORECASE)
FIRST = re.compile(r"(\d+(?:\.\d+)*)" + STEPS)
NEXT = re.compile(r"(\s*,\s*(?:and\s+)?|\s+and\s+|\s+to\s+|\s*-\s*)(\d+(?:\.\d+)+)" + STEPS)
ROW = re.compile(r"[A-Z]\d+")
ROWS = rf"({ROW.pattern}(?:(?:\s*,\s*|\s+and\s+|\s*-\s*){ROW.pattern})*)"
CITED_ROWS = re.compile(rf"\breliability(?:\.md)?,?\s+{ROWS}|\b[Rr]ows?\s+{ROWS}\s+of\s+{re.escape(TABLES)}")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"\[(\d+(?:\.\d+)*)\](?![(\[:])")
DEFINITION = re.compile(r"^\[(\d+(?:\.\d+)*)\]: ([^#\s]*)#(\S+)$", re.MULTILINE)


def sections(root: Path) -> dict[str, str]:
    """Every section and step of the book -> its page."""
    found: dict[str, str] = {}
    for page in sorted((root / BOOK).glob("*.md")):
        for name in ANCHOR.findall(page.read_text(encoding="utf-8")):
            if name in found:
                raise SystemExit(f"check_spec: {BOOK}/{page.name}: section {name} is in {found[name]}, too")
            found[name] = page.name
    return found


def between(first: str, last: str) -> list[str]:
    """The sections between two of one chapter."""
    (chapter, _, low), (end, _, high) = first.rpartition("."), last.rpartition(".")
    return [f"{chapter}.{n}" for n in range(int(low) + 1, int(high))] if chapter == end else []


def with_steps(match: re.Match[str], section: str) -> list[str]:
    """The section, and the steps of it that are named."""
    first, last = match.groups()[-2:]
    return [section] + [f"{section}.{n}" for n in range(int(first), int(last or first) + 1)] if first else [section]


def citations(text: str) -> Iterator[tuple[int, str]]:
    """Line and section of every citation; lists, ranges and steps are taken apart."""
    # a citation may go on in the next line of a comment
    text = COMMENT.sub(lambda mark: " " * len(mark[0]), text)
    for start in CITED.finditer(text):
        line = text.count("\n", 0, start.end()) + 1
        match = FIRST.match(text, start.end())
        before = None
        while match:
            joint, section = (None, match[1]) if before is None else (match[1], match[2])
            if before and joint and joint.strip() in {"-", "to"}:
                yield from ((line, name) for name in between(before, section))
            yield from ((line, name) for name in with_steps(match, section))
            before, match = section, NEXT.match(text, match.end())


def rows(root: Path) -> set[str]:
    """Every row of the tables of what may go wrong."""
    first_cells = re.findall(r"^\| ([^|]*)\|", (root / TABLES).read_text(encoding="utf-8"), re.MULTILINE)
    return {row for cell in first_cells for row in re.findall(rf"^{ROW.pattern}(?=[ ,])|(?<=, ){ROW.pattern}", cell)}


def cited_rows(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every cited row."""
    text = COMMENT.sub(lambda mark: " " * len(mark[0]), text)
    for match in CITED_ROWS.finditer(text):
        yield from ((text.count("\n", 0, match.start()) + 1, row) for row in ROW.findall(match[1] or match[2]))


def files(root: Path) -> Iterator[Path]:
    """The sources that may cite."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and "target" not in path.parts and path.is_file():
                yield path
    yield from sorted(root.glob("*.md"))


def breaches(root: Path) -> tuple[int, list[str]]:
    """Number of citations, and those that lead nowhere."""
    known, known_rows = sections(root), rows(root)
    count, found = 0, []
    for path in files(root):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        cited = [(f"{name}:{line}: spec {section} is no section of {BOOK}", section in known) for line, section in citations(text)]
        cited += [(f"{name}:{line}: {row} is no row of {TABLES}", row in known_rows) for line, row in cited_rows(text)]
        count += len(cited)
        found += [breach for breach, exists in cited if not exists]
    return count, found + [breach for page in sorted((root / BOOK).glob("*.md")) for breach in breaches_of_links(page, known)]


def breaches_of_links(page: Path, known: dict[str, str]) -> list[str]:
    """References of a page of the book to sections that do not exist, and those that are no links."""
    text = page.read_text(encoding="utf-8")
    defined = {name: (target or page.name, anchor) for name, target, anchor in DEFINITION.findall(text)}
    prose = DEFINITION.sub("", CODE.sub("", text))
    found = [
        f"{BOOK}/{page.name}: [{name}] leads to {target}#{anchor}" for name, (target, anchor) in defined.items() if anchor != name or known.get(name) != target
    ]
    for name in sorted(set(REFERENCE.findall(prose))):
        if "." in name and name not in known:
            found.append(f"{BOOK}/{page.name}: [{name}] is no section of {BOOK}")
        elif name in known and name not in defined:
            found.append(f"{BOOK}/{page.name}: [{name}] has no target at the end of the page")
    return found


def main() -> int:
    """Prints what was found."""
    count, found = breaches(ROOT)
    for breach in found:
        print(f"check_spec: {breach}", file=sys.stderr)
    print(f"check_spec: {count} citations, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
