"""The page: one HTML file that needs no network, and the same as JSON.

Lines of a story are the steps of `fletchlog.explain._story`, one list per poll, the first one before the first poll.
"""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fletchlog._core import __version__
from fletchlog.errors import InvalidArgumentError, SchemaError
from fletchlog.explain._fairness import fairness
from fletchlog.explain.compare import distinct, parting, subject, titles
from fletchlog.explain.words import counted, request_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from fletchlog.explain.run import Explanation

FORMAT = "fletchlog-story/1"
SCRIPTS = ("model.js", "timeline.js", "panels.js", "producer.js", "main.js")
PRODUCER = ("time_ms", "kind", "topic", "partition", "batch", "records", "producer_epoch", "base_sequence", "attempts", "base_offset", "error", "node")


def page(explanations: Sequence[Explanation], producer: Any = None) -> str:
    """The page as HTML text: the runs to switch between, the first one shown first, and a producer's trace if given.

    Runs that decide the same are shown once, and say so.

    Raises:
        fletchlog.errors.InvalidArgumentError: Nothing to show.
        fletchlog.errors.SchemaError: `producer` is not a producer's trace.
    """
    contents = story(explanations, producer)
    text = json.dumps(contents, separators=(",", ":"), ensure_ascii=False)
    # "</script>" and "<!--" inside the data would end the element
    text = text.replace("<", "\\u003c")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    parts = {"@TITLE@": html.escape(contents["title"]), "@STYLE@": _asset("page.css"), "@VERSION@": __version__, "@SCRIPT@": script, "@STORY@": text}
    whole = _asset("page.html")
    for mark, part in parts.items():
        whole = whole.replace(mark, part, 1)
    return whole


def story(explanations: Sequence[Explanation], producer: Any = None) -> dict[str, Any]:
    """What the page shows, as values for JSON."""
    if not explanations and producer is None:
        raise InvalidArgumentError("nothing to show: give at least one run of polls, or a producer's trace")
    runs = distinct(explanations)
    lanes = runs[0].story.lanes if runs else []
    topics = list(dict.fromkeys(lane.topic for lane in lanes))
    source = next((run.source for run in runs if run.source), "")
    named = ", ".join(topics[:4]) + (f" and {len(topics) - 4} more topics" if len(topics) > 4 else "")  # noqa: PLR2004 - a line holds four
    return {
        "format": FORMAT,
        "title": f"Poll order: {named}" if runs else "Batches of a producer",
        "subtitle": " · ".join(part for part in (named, counted(len(lanes), "partition") if runs else "", source) if part),
        "topics": topics,
        "lanes": [list(lane) for lane in lanes],
        "ends": [list(runs[0].ends.get(lane, ())) for lane in lanes],
        "gaps": [_gaps(runs, lane) for lane in lanes],
        "runs": [_run(run, title) for run, title in zip(runs, titles(runs), strict=True)],
        "parts": _parts(runs),
        "producer": _producer(producer) if producer is not None else None,
    }


def _run(explanation: Explanation, title: str) -> dict[str, Any]:
    found, buckets = explanation.places, explanation.buckets
    numbers = {tuple(lane): number for number, lane in enumerate(explanation.story.lanes)}
    # the first line is a headline, the last ones the list; the lines between give the reason
    why = request_order([], buckets, explanation.release, subscribed=explanation.subscribed)[1:]
    measured = asdict(fairness(explanation.polls, explanation.ends))
    return {
        "title": title,
        "name": subject(title),
        "release": explanation.release,
        "order": explanation.order,
        "config": explanation.config,
        "nodes": explanation.story.nodes,
        "buckets": buckets,
        "why": " ".join(line.strip() for line in why),
        "places": [[numbers[place.topic, place.partition], place.bucket] for place in found],
        "polls": explanation.story.polls,
        "fairness": measured,
    }


def _gaps(runs: Sequence[Explanation], lane: tuple[str, int]) -> list[Any] | None:
    """Gaps up to the end of the longest run; None where only traces are known."""
    known = [run.gaps[lane] for run in runs if lane in run.gaps]
    return [list(gap) for gap in sorted({gap for found in known for gap in found})] if known else None


def _parts(runs: Sequence[Explanation]) -> dict[str, Any]:
    """Where any two runs part, by `i-j`."""
    parts = {}
    names = [subject(title) for title in titles(runs)]
    for i, one in enumerate(runs):
        for j in range(i + 1, len(runs)):
            found = parting(one.story, runs[j].story)
            if found is not None:
                one_does, other_does = found.first or "nothing more", found.second or "nothing more"
                text = f"{names[i]} {_short(one_does)}; {names[j]} {_short(other_does)}"
                parts[f"{i}-{j}"] = {"poll": max(1, found.poll), "decision": found.decision, "text": text}
    return parts


def _short(text: str) -> str:
    longest = 150
    return text if len(text) <= longest else text[: longest - 1].rsplit(",", 1)[0] + ", …"


def _producer(trace: Any) -> dict[str, Any]:
    from fletchlog.interop import to_pyarrow

    table: pa.Table = trace if hasattr(trace, "column_names") else to_pyarrow(trace)
    missing = [name for name in PRODUCER if name not in table.column_names]
    if missing:
        raise SchemaError(f"this is not a producer's trace: it has no column {', '.join(missing)}")
    columns = {name: table[name].to_pylist() for name in PRODUCER}
    lanes = sorted({(t, p) for t, p in zip(columns["topic"], columns["partition"], strict=True) if t is not None})
    numbers = {lane: number for number, lane in enumerate(lanes)}
    lane = [numbers.get(pair, -1) for pair in zip(columns["topic"], columns["partition"], strict=True)]
    plain = [["" if v is None and name == "error" else -1 if v is None else v for v in columns[name]] for name in PRODUCER[4:]]
    return {
        "lanes": [list(item) for item in lanes],
        "batches": len({batch for batch in columns["batch"] if batch is not None}),
        "events": [list(row) for row in zip(columns["time_ms"], columns["kind"], lane, *plain, strict=True)],
    }


def _asset(name: str) -> str:
    return (files("fletchlog.explain") / "page" / name).read_text(encoding="utf-8")
