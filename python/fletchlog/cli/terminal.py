"""Tables, colours and progress bars of the command line; `text` has what needs no library, and nothing is imported before it is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fletchlog.cli.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text


# a width that no table has
ANY = 1_000_000


def styled(text: str, style: str) -> Text:
    """Text in a style, for a cell or a line."""
    from rich.text import Text

    return Text(visible(text), style)


def _screen(**options: Any) -> Console:
    from rich.console import Console

    class Screen(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text), **options)

    return Screen(highlight=False, markup=False, emoji=False, **options)


def out() -> Console:
    """Where results go. Made per call: tests and pipes replace the stream. A file or pipe gets lines as long as they are."""
    return _screen(file=sys.stdout, width=None if sys.stdout.isatty() else ANY)


def err() -> Console:
    """Where progress goes."""
    return _screen(file=sys.stderr)


def in_file(file: Any) -> Console:
    """A file to print tables into."""
    return _screen(file=file, width=ANY)


def progress(*, unit: str = "records", console: Console | None = None) -> Progress:
    """A progress bar on standard error; it disappears when done and stays silent when its console is no terminal.

    Args:
        unit: What is counted.
        console: Another console; other output to the same terminal must also go through it.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

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
        # results always go to standard output
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
