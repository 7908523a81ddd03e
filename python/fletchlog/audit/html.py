"""The page of an audit: tables and bars, in one file that needs no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fletchlog.audit.order import DECADES
from fletchlog.audit.words import shown, span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.audit.report import AuditReport, KeyAudit, PartitionAudit

COMPLETENESS = {
    "records": "records", "first_offset": "first offset", "last_offset": "last offset", "gaps": "missing offsets", "gaps_markers": "missing: markers",
    "gaps_compaction": "missing: compacted", "gaps_unexplained": "missing: unexplained", "duplicate_records": "repeated records",
    "duplicate_values": "repeated values", "duplicate_keys": "repeated keys", "duplicate_sequences": "repeated sequences", "skew": "skew",
}  # fmt: skip
LATENESS = {
    "records": "records", "timestamp_inversions": "steps back", "inversion_max_ms": "furthest step back", "lateness_p50_ms": "delay for 50 %",
    "lateness_p99_ms": "delay for 99 %", "lateness_p999_ms": "delay for 99.9 %", "lateness_p9999_ms": "delay for 99.99 %", "lateness_max_ms": "delay for all",
    "behind_ms": "newest is behind by",
}  # fmt: skip
SAID = {
    "Completeness and repeats": "Missing: offsets between the first and the last record that no record has; the marker of a transaction or the "
    "cleaner explains them, or nothing does. Repeated: as an earlier record of the partition; sequences are batches that a producer sent twice. "
    "Skew: records as a multiple of the topic's mean.",
    "Order and lateness": "Step back: a lower timestamp than the record before. A record is late by how far it is behind the highest timestamp up "
    "to it; the delay for 99 % is the shortest watermark delay with which that share is not too late. Newest is behind by: how far the partition "
    "is behind its topic, as idle ones are.",
}
# what should be 0 is marked where it is not
WRONG = {"gaps_unexplained", "duplicate_sequences"}
OFFSETS = {"first_offset", "last_offset"}
KEY_CHARS = 60


def page(report: AuditReport, most: Mapping[str, float]) -> str:
    """The whole page, with what `most` allows."""
    body = [f"<h1>Ordering audit</h1><p>{html.escape(report.source)}</p>", _verdict(report, most), _summary(report), *tables(report, most)]
    return PAGE.replace("@BODY@", "".join(body))


def tables(report: AuditReport, most: Mapping[str, float]) -> list[str]:
    """Its tables, one after the other."""
    return [
        _grid("Completeness and repeats", report.partitions, COMPLETENESS, most),
        _grid("Order and lateness", report.partitions, LATENESS, most),
        *(_bars(topic, counts) for topic, counts in report.lateness.items() if sum(counts[1:])),
        _punctual([topic for topic, counts in report.lateness.items() if not sum(counts[1:])]),
        _keys(report.keys, report.keys_in_several_partitions),
    ]


def _verdict(report: AuditReport, most: Mapping[str, float]) -> str:
    """Whether it holds what it is held to; without thresholds, whether anything is there that should not."""
    breaches = report.breaches(most)
    if breaches:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in breaches)
        count = len({(p.topic, p.partition) for p in report.partitions for name, limit in most.items() if (getattr(p, name) or 0) > limit})
        return f'<div class="verdict failed"><b>Failed: {count:,} of {len(report.partitions):,} partitions exceed a threshold.</b><ul>{lines}</ul></div>'
    if most:
        held = ", ".join(f"{(COMPLETENESS | LATENESS)[name]} at most {shown(name, limit)}" for name, limit in most.items())
        return f'<div class="verdict passed"><b>Passed: every partition keeps the thresholds.</b> {html.escape(held)}</div>'
    wrong = [f"{total:,} {COMPLETENESS[name]}" for name in sorted(WRONG) if (total := sum(getattr(p, name) or 0 for p in report.partitions))]
    if wrong:
        return f'<div class="verdict failed"><b>{html.escape(" and ".join(wrong))}.</b> These should be 0.</div>'
    return '<div class="verdict"><b>No thresholds were given.</b> Nothing is missing without a reason, and no batch was sent twice.</div>'


def _summary(report: AuditReport) -> str:
    total = sum(p.records for p in report.partitions)
    facts = [
        (f"{total:,}", "records"),
        (f"{len(report.partitions):,}", "partitions"),
        _missing(report),
        (f"{sum(p.duplicate_records for p in report.partitions):,}", "repeated records"),
        (f"{sum(p.timestamp_inversions for p in report.partitions):,}", "timestamps that step back"),
        (span(max((p.lateness_p999_ms or 0 for p in report.partitions), default=0)), "watermark delay that keeps 99.9 % everywhere"),
    ]
    return '<ul class="facts">' + "".join(f"<li><b>{value}</b> {html.escape(what)}</li>" for value, what in facts) + "</ul>"


def _missing(report: AuditReport) -> tuple[str, str]:
    unexplained = [p.gaps_unexplained for p in report.partitions if p.gaps_unexplained is not None]
    if len(unexplained) < len(report.partitions):
        return f"{sum(p.gaps for p in report.partitions):,}", "offsets missing"
    return f"{sum(unexplained):,}", "offsets missing without a reason"


def _grid(title: str, partitions: Sequence[PartitionAudit], columns: Mapping[str, str], most: Mapping[str, float]) -> str:
    rows = [_row(f"{p.topic}-{p.partition}", [_cell(column, _value(p, column), most.get(column)) for column in columns]) for p in partitions]
    return f"<h2>{title}</h2><p>{SAID[title]}</p>{_table(['partition', *columns.values()], rows)}"


def _value(p: PartitionAudit, column: str) -> float | None:
    value: float | None = getattr(p, column)
    # without records there is no first and no last offset
    return None if column in OFFSETS and not p.records else value


def _cell(column: str, value: float | None, most: float | None) -> str:
    if most is not None and value is not None:
        kind = "breach" if value > most else "kept"
        return f'<td class="{kind}">{shown(column, value)} <small>≤ {shown(column, most)}</small></td>'
    mark = ' class="wrong"' if column in WRONG and value else ' class="none"' if value == 0 and column not in OFFSETS else ""
    return f"<td{mark}>{shown(column, value)}</td>"


def _bars(topic: str, counts: Sequence[int]) -> str:
    total, most = sum(counts), max(counts)
    # the last decade holds everything beyond it
    names = ["not late", *(f"{span(10 ** (i - 1))} {f'to {span(10**i)}' if i < DECADES - 1 else 'and more'}" for i in range(1, len(counts)))]
    rows = [
        _row(name, [f'<td class="bar">{_bar(100 * count / most)}</td><td>{count:,}</td><td>{100 * count / total:.3f} %</td>'])
        for name, count in zip(names, counts, strict=True)
        if count
    ]
    return f'<h2>How late records of {html.escape(topic)} are</h2><table class="bars">{"".join(rows)}</table>'


def _punctual(topics: Sequence[str]) -> str:
    return f"<p>No record is late in {html.escape(', '.join(topics))}.</p>" if topics else ""


def _bar(percent: float) -> str:
    return f'<i style="width:{percent:.2f}%"></i>' if percent else ""


def _keys(keys: Sequence[KeyAudit], several: Mapping[str, int]) -> str:
    said = "".join(f"<p>{count:,} keys of {html.escape(topic)} are in more than one partition.</p>" for topic, count in several.items() if count)
    if not keys:
        return f"<h2>Keys</h2>{said}<p>No key is repeated, inverted or in more than one partition.</p>"
    rows = []
    for key in keys:
        furthest = "" if key.inversion_max_ms is None else span(key.inversion_max_ms)
        cells = (f"{key.records:,}", key.partitions, f"{key.duplicate_records:,}", f"{key.timestamp_inversions:,}", furthest)
        texts = [f'<td class="text">{html.escape(key.topic)}</td>', *(f"<td>{cell}</td>" for cell in cells)]
        rows.append(_row(key.key.decode("utf-8", "backslashreplace")[:KEY_CHARS], texts))
    heads = ("key", "topic", "records", "partitions", "repeated", "steps back", "furthest step back")
    return f"<h2>Keys with most to complain about</h2>{said}{_table(heads, rows)}"


def _row(name: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{html.escape(name)}</th>{"".join(cells)}</tr>'


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    kinds = {"topic": ' class="text"'}
    head = "".join(f'<th scope="col"{kinds.get(text, "")}>{html.escape(text).replace(" %", "&nbsp;%")}</th>' for text in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Ordering audit</title><style>
:root { color-scheme: light dark; --ink: #1d2126; --quiet: #5a626b; --paper: #fbfbf9; --line: #dfe2e5; --bar: #0069a8; --wrong: #b3261e;
  --bad: #fbe9e7; --good: #e6f4ea; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e8eaec; --quiet: #a2aab3; --paper: #14171a; --line: #343a41; --bar: #58b2ee; --wrong: #ff8a80; --bad: #3b1f1d; --good: #1b3324; } }
html { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  background: var(--paper); color: var(--ink); font-variant-numeric: tabular-nums; }
body { max-width: 1500px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.8rem 0 .3rem; } p { color: var(--quiet); margin: .2rem 0; }
.facts { list-style: none; display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; padding: 0; } .facts b { font-size: 1.3rem; margin-right: .2rem; }
p { max-width: 62rem; } .scroll { overflow: auto; max-height: 80vh; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .22rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--quiet); vertical-align: bottom; }
thead th { position: sticky; top: 0; z-index: 1; background: var(--paper); white-space: normal; }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: var(--paper); } thead th:first-child { z-index: 2; }
.text, thead .text { text-align: left; } .none { color: var(--quiet); opacity: .75; } tbody th { color: var(--ink); }
.verdict { border: 1px solid var(--line); border-left: 5px solid var(--quiet); border-radius: 6px; padding: .6rem .9rem; margin: 1rem 0; max-width: 62rem; }
.verdict ul { margin: .3rem 0 0; padding-left: 1.3rem; } .failed { border-left-color: var(--wrong); background: var(--bad); }
.passed { border-left-color: #2e8b57; background: var(--good); } .breach { background: var(--bad); color: var(--wrong); font-weight: 700; }
.kept { background: var(--good); } td small { color: var(--quiet); font-weight: 400; }
.wrong { color: var(--wrong); font-weight: 700; } .bars { width: 100%; max-width: 62rem; } .bars .bar { width: 100%; text-align: left; }
.bar i { display: block; height: .8rem; min-width: 1px; background: var(--bar); border-radius: 2px; }
</style></head><body>@BODY@</body></html>
"""
