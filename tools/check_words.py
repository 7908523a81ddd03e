"""The texts that users read are free of phrases that a reader has to read twice: `python tools/check_words.py`.

`WORDS` lists the phrases and what to write instead. Code, in blocks and between backquotes, is not text. `docs/kafka` is written for
readers of Kafka's sources and is left out.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("README.md", "CHANGELOG.md", "benches/README.md", "docs/*.md", "docs/howto/*.md", "docs/promises/*.md", "docs/reference/**/*.md")
STUB = "python/fletchlog/_core.pyi"

# what is counted or measured, and what it is counted for: "records a second" is "records/s" or "records per second"
MEASURES = (
    "records|rows|bytes|ns|µs|ms|seconds|times|polls|requests|lines|keys|ids|threads|files|modules|tests|segments|batches|objects|ports|tasks|transactions"
    "|columns|partitions|B|KiB|MiB|GB|GiB|CPU|time|snapshot|memory"
)
EACH = (
    "second|minute|day|record|row|poll|partition|node|batch|segment|task|transaction|id|test|key|object|column|connection|client|topic|line|member|consumer"
    "|producer|process|processor|query|release|format|broker|call|API|part|value|request|round|file|thread|stream|target|attack|GiB|MiB|byte"
)

# a phrase may continue in the next line, but not in the next paragraph
SPACE = r"(?:[ \t]+|[ \t]*\n[ \t]*)"

WORDS = {
    r"of ours|of yours|of theirs|of our own": "name whose it is, or leave it out",
    r"our|ours": "fletchlog's, or the",
    r"but for": "except",
    r"g(?:o|oes|oing|one) on|went on": "continue",
    r"so many": "N, this many",
    r"as (?:\S+ ){1,4}has it": "as X does",
    r"(?:that|which|it|there|where it) (?:is|are) none": "say what is missing",
    rf"(?:{MEASURES}|one|an? [^\s,:;.]+) an? (?:{EACH})": "per, for each",
    r"of (?:its|their|one's) own": "its own X, or leave it out",
    r"without end": "indefinitely",
    r"all else|what else": "everything else, other X",
    r"in front of": "before",
    r"for ever": "forever",
    r"to be had": "available",
    r"somebody|whoever": "name who: the caller, another process",
    r"anew": "again",
    r"answers (?:the|a|an|what|whether|how) ": "returns",
}


def main() -> None:
    """Lists every phrase with its place."""
    breaches = [breach for path in files() for breach in of_file(path)]
    print(*breaches, f"check_words: {len(files())} texts, {len(breaches)} breaches", sep="\n")
    sys.exit(bool(breaches))


def files() -> list[Path]:
    """What is checked."""
    return [*sorted({path for pattern in TEXTS for path in ROOT.glob(pattern)}), ROOT / STUB]


def of_file(path: Path) -> list[str]:
    """The breaches of one file."""
    content = path.read_text(encoding="utf-8")
    texts = docstrings(content) if path.suffix == ".pyi" else [(1, content)]
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [f"{name}:{line}: {breach}" for first, text in texts for line, breach in of_text(text, first)]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def of_text(text: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """Line, phrase and what to write instead."""
    text = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"`([^`\n]*)`", lambda code: re.sub(r"\s", "_", code[1]), text)
    for phrase, instead in WORDS.items():
        for found in re.finditer(rf"(?<![\w-])(?:{phrase})(?![\w-])".replace(" ", SPACE), text, flags=re.IGNORECASE):
            yield first + text.count("\n", 0, found.start()), f"{' '.join(found[0].split())!r}: {instead}"


if __name__ == "__main__":
    main()
