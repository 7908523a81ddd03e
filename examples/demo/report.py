"""What the demo found: numbers for report.json, the same numbers on the screen, and the checks that decide the exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


@dataclass
class Report:
    """Collects sections in order. Everything that is printed is also in `data`."""

    console: Console
    data: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """A line that begins a part."""
        self.console.print()
        self.console.print(Text(text, "bold"))

    def say(self, text: str) -> None:
        """A sentence."""
        self.console.print(text)

    def rows(self, rows: list[dict[str, Any]], *, left: int = 1) -> None:
        """Rows with the same keys as a table; the first `left` columns are texts."""
        table = Table(*(name.replace("_", " ") for name in rows[0]), header_style="bold", pad_edge=False, box=None, padding=(0, 2))
        for number, column in enumerate(table.columns):
            column.justify = "left" if number < left else "right"
        for row in rows:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()))
        self.console.print(table)

    def check(self, what: str, found: Any, expected: Any) -> None:
        """Notes a failure unless both are equal."""
        holds = found == expected
        self.data.setdefault("checks", []).append({"what": what, "found": found, "expected": expected, "holds": holds})
        if not holds:
            self.failures.append(f"{what}: found {found}, expected {expected}")

    def check_that(self, what: str, holds: bool) -> None:
        """Notes a failure unless it holds."""
        self.check(what, bool(holds), True)

    def write(self, path: Path) -> None:
        """Writes report.json."""
        path.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
