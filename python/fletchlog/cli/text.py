"""Text for people: everything that the command line prints goes through `visible`, because it may come from anywhere.

Keys, values, topics and paths are written by others. None of it is treated as markup, and no control character of it reaches a terminal.
Imports little: `fletchlog serve` starts with it.
"""

from __future__ import annotations

import sys
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any

# Python's substitutes for bytes of a path that are no UTF-8
_BYTES = range(0xDC80, 0xDD00)
# The last line of the log, and how often it has come.
_last: list[Any] = ["", 0]


@cache
def controls() -> re.Pattern[str]:
    """All control characters but tab and line feed, what turns the direction of writing, other ends of lines, halves of surrogate pairs."""
    import re

    return re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Text with control characters as escapes (`\x1b`), other characters as they are."""
    return text if text.isprintable() else controls().sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in _BYTES:
        code -= 0xDC00
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - two digits


def say(text: str) -> None:
    """Prints lines on standard output, however long they are."""
    print(visible(text))


def note(text: str) -> None:
    """Prints a line on standard error."""
    print(visible(text), file=sys.stderr)


def note_log(line: str) -> None:
    """Prints a line of the engine's log on standard error; one that comes again and again at the 1st, 10th, 100th time. For one thread."""
    times = _last[1] + 1 if line == _last[0] else 1
    _last[:] = line, times
    if times == 1:
        note(f"fletchlog: {line}")
    elif str(times).strip("0") == "1":
        note(f"fletchlog: {line} ({times:,} times)")


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 record`, `1,000 records`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
