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
from fletchlog.explain.session.columns import among, distinct, np
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
        "starts": facts.lines.arrived_us[::CHUNK].tolist(),
        "bins": BINS,
        "density": _density(facts),
        "positions": {int(facts.lines.number[at]): at + 1 for at in among(facts.lines.number, np.array(list(evidence), np.int64)).tolist()},
    }


def _chunks(facts: Facts) -> Iterator[str]:
    errors: dict[int, list[str]] = {}
    for refused in facts.refused:
        errors.setdefault(refused.number, []).append(refused.error)
    for start in range(0, len(facts.lines), CHUNK):
        *columns, _ = facts.lines.values(slice(start, start + CHUNK))
        said = [", ".join(dict.fromkeys(errors[number])) if number in errors else "" for number in columns[0]]
        rows = list(zip(*columns, said, strict=True))
        yield base64.b64encode(zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 6)).decode()


def _density(facts: Facts) -> list[list[list[int]]]:
    """By client: column of the time line, requests, whether one failed."""
    lines = facts.lines
    found: list[list[list[int]]] = [[] for _ in facts.clients]
    span = max(1, facts.last_us - facts.first_us)
    column = np.minimum(BINS - 1, (lines.arrived_us - facts.first_us) * BINS // span)
    failed = np.isin(lines.outcome, [number for number, text in enumerate(lines.named.texts) if text not in BAD])
    failed[among(lines.number, np.array([refused.number for refused in facts.refused], np.int64))] = True
    kinds, counts, kind = distinct(lines.client, column)
    is_bad = np.bincount(kind, failed, len(kinds)) > 0
    values = (lines.client[kinds], column[kinds], counts, is_bad.astype(np.int64))
    for client, *entry in sorted(zip(*(value.tolist() for value in values), strict=True)):
        found[client].append(entry)
    return found


def _asset(name: str) -> str:
    return (files("fletchlog.explain") / "page" / name).read_text(encoding="utf-8")
