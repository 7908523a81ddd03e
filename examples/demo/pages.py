"""The pages that the demo ends with: the order of polls, the audit, the delays."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from demo.report import Report

POLLS = 300


def write_pages(log: Path, topics: Sequence[str], output: Path, report: Report) -> dict[Path, str]:
    """Writes the pages; returns what each shows."""
    import fletchlog as fl
    from fletchlog.audit import run as audit
    from fletchlog.explain import against, page
    from fletchlog.explain import polls as explain
    from fletchlog.explain.compare import every_order

    with fl.Broker(log, read_only=True) as broker:
        first = explain(broker, topics, polls=POLLS, title=str(log))
        runs = [first, *against(broker, topics, None, every_order(first), polls=POLLS, title=str(log))]
    pages = {
        output / "explain.html": (page(runs), "which partition each poll reads and why, step by step, every client release and KIP-387 side by side"),
        output / "audit.html": (audit(log, topics).html({"gaps_unexplained": 0, "duplicate_sequences": 0}), "what was lost, came twice or came late"),
        output / "delays.html": (_delays(report), "the carriers that are late most"),
    }
    for path, (text, _) in pages.items():
        path.write_text(text, encoding="utf-8")
    return {path: what for path, (_, what) in pages.items()}


def _delays(report: Report) -> str:
    rows = report.data["delays"]["worst_carriers"]
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in names) + "</tr>" for row in rows)
    return PAGE.replace("@HEAD@", head).replace("@BODY@", body)


def _cell(item: object) -> str:
    return f"{item:,.1f}" if isinstance(item, float) else f"{item:,}" if isinstance(item, int) else str(item)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Delays by carrier</title><style>
:root { color-scheme: light dark; } body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; }
</style></head><body><h1>Delays by carrier</h1><p>Counted by Spark in event-time windows over the stream of the idempotent topic.</p>
<div class="scroll"><table><thead><tr>@HEAD@</tr></thead><tbody>@BODY@</tbody></table></div></body></html>
"""
