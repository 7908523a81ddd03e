"""Numbers of an audit for people."""

from __future__ import annotations


def span(ms: float) -> str:
    """Milliseconds: `1.1 h`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:,.1f} {unit}".replace(".0 ", " ")
    return f"{ms:,.0f} ms"


def shown(column: str, value: float | None) -> str:
    """A value of a column of `PartitionAudit`, or a threshold of it; empty for None."""
    if value is None:
        return ""
    if column.endswith("_ms"):
        return span(value)
    return f"{value:,.2f}" if column == "skew" else f"{value:,}" if value != int(value) else f"{int(value):,}"
