"""The page of a session: one HTML file that needs no network. Requests are in packed chunks, which the page unpacks when it shows them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fletchlog._core import __version__
from fletchlog.explain.session.explained import no_collection
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.explained import Explained
    from fletchlog.explain.session.facts import Facts

CHUNK = 2_000
"""Requests in a chunk."""
BINS = 600
"""Columns of the time line."""
BAD = ("answered", "without response", "pending")
# the page lists no more
MOST_LISTED = 500


def page_of(explained: Explained) -> str:
    """The page as HTML text."""
    with no_collection():
        story = _story(explained)
    text = json.dumps(story, separators=(",", ":"), ensure_ascii=False)
    # "</script>" and "<!--" inside the data would end the element
    text = text.replace("<", "\\u003c")
    script = f'\n"use strict";\n(() => {{\n{_asset("session.js")}\n}})();\n'
    parts = {
        "@HASH@": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "@TITLE@": html.escape(f"Session: {explained.source}" if explained.source else "Session"),
        "@STYLE@": f"{_asset('page.css')}\n{_asset('session.css')}",
        "@VERSION@": __version__,
        "@STORY@": text,
        "@SCRIPT@": script,
    }
    head, *rest = _asset("session.html").split("@STORY@")
    whole = [head, *rest]
    # each part is put into the template alone, so no data is taken for a mark
    for mark, part in parts.items():
        if mark != "@STORY@":
            whole = [piece.replace(mark, part) for piece in whole]
    return text.join(whole)


def _story(explained: Explained) -> dict[str, Any]:
    facts, values = explained.facts, explained.as_dict(whole=False)
    evidence = {number for finding in explained.findings for number in finding.evidence}
    for group in values["groups"]:
        group["members"], group["rebalances"] = group["members"][:MOST_LISTED], group["rebalances"][:MOST_LISTED]
        if "moments" in group:
            group["moments"] = group["moments"][:MOST_LISTED]
            del group["held"], group["redelivered"]
    for polls in values["polls"]:
        polls["total"], polls["polls"] = len(polls["polls"]), polls["polls"][:MOST_LISTED]
    said = [counted(len(facts.lines), "request"), counted(len(explained.clients), "client"), explained.source, *explained.incomplete]
    return values | {
        "subtitle": " · ".join(part for part in said if part),
        "transactions": values["transactions"][:MOST_LISTED],
        "lag": values["lag"][:MOST_LISTED],
        "chunk": CHUNK,
        "chunks": list(_chunks(facts)),
        "starts": [line.arrived_us for line in facts.lines[::CHUNK]],
        "bins": BINS,
        "density": _density(facts),
        "positions": {line.number: at for at, line in enumerate(facts.lines, 1) if line.number in evidence},
    }


def _chunks(facts: Facts) -> Iterator[str]:
    errors: dict[int, list[str]] = {}
    for refused in facts.refused:
        errors.setdefault(refused.number, []).append(refused.error)
    for start in range(0, len(facts.lines), CHUNK):
        rows = [
            [
                line.number, line.client, line.connection, line.api, line.version, line.arrived_us, line.answered_us, line.request_bytes, line.response_bytes,
                line.outcome, ", ".join(dict.fromkeys(errors.get(line.number, ()))),
            ]
            for line in facts.lines[start : start + CHUNK]
        ]  # fmt: skip
        yield base64.b64encode(zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 6)).decode()


def _density(facts: Facts) -> list[list[list[int]]]:
    """By client: column of the time line, requests, whether one failed."""
    found: list[dict[int, list[int]]] = [{} for _ in facts.clients]
    failed = {refused.number for refused in facts.refused}
    span = max(1, facts.last_us - facts.first_us)
    first, last = facts.first_us, BINS - 1
    for line in facts.lines:
        column = min(last, (line.arrived_us - first) * BINS // span)
        columns = found[line.client]
        entry = columns.get(column)
        if entry is None:
            entry = columns[column] = [column, 0, 0]
        entry[1] += 1
        if line.number in failed or line.outcome not in BAD:
            entry[2] = 1
    return [[entry for _, entry in sorted(columns.items())] for columns in found]


def _asset(name: str) -> str:
    return (files("fletchlog.explain") / "page" / name).read_text(encoding="utf-8")
