"""Output for people: everything that the command line prints goes through `visible`, because it may come from anywhere.

Keys, values, topics and paths are written by others. None of it is treated as markup, and no control character of it reaches a terminal.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

# all control characters but tab and line feed, what turns the direction of writing, other ends of lines, halves of surrogate pairs
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Python's substitutes for bytes of a path that are no UTF-8
_BYTES = range(0xDC80, 0xDD00)


def visible(text: str) -> str:
    r"""Text with control characters as escapes (`\x1b`), other characters as they are."""
    return CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in _BYTES:
        code -= 0xDC00
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - two digits


def styled(text: str, style: str) -> Text:
    """Text in a style, for a cell or a line."""
    return Text(visible(text), style)


class _Screen(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def _screen(**options: Any) -> Console:
    return _Screen(highlight=False, markup=False, emoji=False, **options)


def out() -> Console:
    """Where results go. Made per call: tests and pipes replace the stream. A file or pipe gets lines of 120 characters."""
    return _screen(file=sys.stdout, width=None if sys.stdout.isatty() else 120)


def err() -> Console:
    """Where progress goes."""
    return _screen(file=sys.stderr)


def in_file(file: Any) -> Console:
    """A file to print tables into."""
    return _screen(file=file, width=160)


def say(text: str) -> None:
    """Prints lines on standard output, however long they are."""
    print(visible(text))


def note(text: str) -> None:
    """Prints a line on standard error."""
    print(visible(text), file=sys.stderr)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 record`, `1,000 records`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def progress(*, unit: str = "records", console: Console | None = None) -> Progress:
    """A progress bar on standard error; it disappears when done and stays silent when its console is no terminal.

    Args:
        unit: What is counted.
        console: Another console; other output to the same terminal must go through it, too.
    """
    console = console or err()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        # results go to standard output whatever standard error is
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
