"""Rows of a command as a table, one line a field where it is narrow, or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli.terminal import ANY, out
from fletchlog.cli.text import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

# with fewer columns on the screen a table of records or partitions is not readable
NARROW = 80


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str, title: str | None = None) -> None:
    """Prints rows with the same fields; `empty` is said when there are none."""
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        say(empty)
    else:
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for name in rows[0]:
            number = any(isinstance(row[name], int) for row in rows)
            table.add_column(name, justify="right" if number else "left")
        for row in rows:
            table.add_row(*(_cell(item) for item in row.values()))
        draw(table)


def draw(table: Table) -> None:
    """Prints a table; one line a cell where the screen is narrow, or has no room for the words of its columns."""
    console = out()
    for column in table.columns:
        # nothing is cut off
        column.overflow = "fold"
    if console.width >= NARROW and console.measure(table, options=console.options.update(max_width=ANY)).minimum <= console.width:
        console.print(table)
        return
    if table.title is not None:
        say(str(table.title))
    names = [str(column.header).replace("\n", " ") for column in table.columns]
    console.print(vertical(names, list(zip(*(column.cells for column in table.columns), strict=True))))


def done(sentence: str, *, as_json: bool, **facts: Any) -> None:
    """Says what a command did, or gives the facts as JSON."""
    if as_json:
        print(json.dumps(facts))
    else:
        say(sentence)


def vertical(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> Table:
    """A line a field, an empty one between two rows."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for number, line in enumerate(lines):
        if number:
            grid.add_row("", "")
        for name, text in zip(names, line, strict=True):
            grid.add_row(name, text)
    return grid


def _cell(item: Any) -> str:
    if isinstance(item, list):
        return ", ".join(map(str, item))
    return "" if item is None else f"{item:,}" if isinstance(item, int) else str(item)
