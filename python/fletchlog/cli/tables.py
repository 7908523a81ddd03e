"""Rows of a command as a table, one line a field where it is narrow, or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli.terminal import out
from fletchlog.cli.text import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# with fewer columns on the screen a table of records or partitions is not readable
NARROW = 80


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, empty: str, title: str | None = None) -> None:
    """Prints rows with the same fields; `empty` is said when there are none."""
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        say(empty)
    else:
        console = out()
        lines = [[_cell(item) for item in row.values()] for row in rows]
        names = list(rows[0])
        if console.width < NARROW:
            if title is not None:
                say(title)
            console.print(vertical(names, lines))
            return
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for name in names:
            number = any(isinstance(row[name], int) for row in rows)
            table.add_column(name, justify="right" if number else "left")
        for line in lines:
            table.add_row(*line)
        console.print(table)


def vertical(names: Sequence[str], lines: Sequence[Sequence[str]]) -> Any:
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
