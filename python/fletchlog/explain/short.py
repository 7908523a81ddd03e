"""The story in short, for readers who are new to Kafka's order: what was asked, what came, why this partition next."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fletchlog.explain._fairness import fairness
from fletchlog.explain.words import WIDTH, arguments, counted, listed

if TYPE_CHECKING:
    from fletchlog.explain._story import Step, Story
    from fletchlog.explain.run import Explanation

LINES = 24
NAMES = 6
RULES = {
    "partition": "a poll takes what was fetched first until it is used up, then what was fetched next",
    "kip-387": "each poll takes from the next partition in turn",
    "timestamp": "each poll takes the oldest record that is buffered",
}
TURNS = {"partition": "next in the queue", "kip-387": "its turn", "timestamp": "it has the oldest record"}


def short(explanation: Explanation, title: str) -> str:
    """At most some thirty lines."""
    places, buckets = explanation.places, explanation.buckets
    topics = list(dict.fromkeys(lane.topic for lane in explanation.story.lanes))
    partitions = f"{counted(len(explanation.story.lanes), 'partition')} of {listed(topics, NAMES)}" if topics else "no partition"
    lines = [f"{title} reads {partitions}" + (f" ({explanation.source})" if explanation.source else "")]
    if len(places) > 1:
        lines += _wrap(f"Asked for in this order: {listed([str(place) for place in places], NAMES)}", "  ")
    if len(places) > 1 and buckets is not None:
        lines += _wrap(f"It is the walk of a Java hash table with {counted(buckets, 'bucket')}: always the same, but not the order the program gives.", "    ")
    if len(places) > 1:
        lines += _wrap(f"Why this partition next: {RULES[explanation.order]}. A partition whose records still wait in the queue is not asked for.", "  ")
    found = _Teller(explanation.story, TURNS[explanation.order])
    said = found.tell()
    lines.append("")
    for line in said[:LINES]:
        lines += line.text()
    if len(said) > LINES:
        last = len(explanation.story.polls) - 1
        lines.append(f"  and so on, to poll {last:,}")
    return "\n".join([*lines, "", *_wrap(_numbers(explanation), "")])


def _numbers(explanation: Explanation) -> str:
    f = fairness(explanation.polls, explanation.ends)
    if not f.records:
        return "No poll returned a record."
    runs = f"{counted(f.polls, 'poll')} returned {counted(f.records, 'record')} in {counted(f.runs, 'run')} from one partition in a row"
    if f.runs < 2:  # noqa: PLR2004 - nothing to compare
        return f"{runs}."
    waited = f"; a partition that had records waited {counted(f.worst_wait_polls, 'poll')} at most" if explanation.ends else ""
    return f"{runs}: typically {f.typical_run:,}, the longest {f.longest_run:,}{waited}."


@dataclass
class _Line:
    what: str
    said: str
    first: int
    last: int
    lane: int = -1
    from_offset: int = -1
    to_offset: int = -1
    records: int = 0

    def text(self) -> list[str]:
        polls = f"poll {self.first:,}" if self.first == self.last else f"polls {self.first:,} - {self.last:,}"
        return _wrap(f"  {polls:<20}{self.what:<10}{self.said}", "", " " * 34)


@dataclass
class _Teller:
    story: Story
    turn: str
    lines: list[_Line] = field(default_factory=list)
    run: _Line | None = None
    """The current run: it continues while no other partition has records."""
    reason: str = ""
    """Why the partition of this run had its turn."""
    ended: dict[int, str] = field(default_factory=dict)
    """Partitions whose turn ended, and why."""

    def tell(self) -> list[_Line]:
        for poll, steps in enumerate(self.story.polls):
            self._asked(poll, steps)
            self._came(poll, steps)
            for step in steps:
                self._step(poll, step)
        return self.lines

    def _name(self, lane: int) -> str:
        return str(self.story.lanes[lane])

    def _asked(self, poll: int, steps: list[Step]) -> None:
        asked: dict[int, list[str]] = {}
        for step in steps:
            if step[0] == "ask" and step[3]:
                asked.setdefault(step[1], []).extend(self._name(lane) for lane, _ in step[3])
        for node, names in asked.items():
            self._line(poll, "asked", f"node {node} for {listed(list(dict.fromkeys(names)), NAMES)}")

    def _came(self, poll: int, steps: list[Step]) -> None:
        parts = [part for step in steps if step[0] == "answer" for part in step[3] if part[2]]
        for part in parts:
            self.ended.pop(part[0], None)
        if parts:
            names = [f"{self._name(part[0])}{f' ({part[2]:,})' if part[2] > 0 else ''}" for part in parts]
            self._line(poll, "came", f"to the end of the queue, in this order: {listed(names, NAMES)}")

    def _step(self, poll: int, step: Step) -> None:
        match step:
            case ("take", lane, first, last, records):
                self._take(poll, lane, first, last, records)
            case ("drained", lane, _):
                self.ended[lane] = f"{self._name(lane)} is used up"
            case ("park", lane):
                self.ended[lane] = f"{self._name(lane)} is paused"
            case ("drop", lane, why):
                self.ended[lane] = f"what was fetched of {self._name(lane)} is thrown away{f' ({why})' if why else ''}"
            case ("call", method, given, epoch) if poll > 0:
                self._line(poll, "called", f"{method}({listed(arguments(self.story, given, epoch), NAMES)}) by the program")
            case ("error", lane, node, text):
                where = f"{self._name(lane)}: " if lane >= 0 else f"node {node}: " if node >= 0 else ""
                self._line(poll, "error", f"{where}{text}")

    def _take(self, poll: int, lane: int, first: int, last: int, records: int) -> None:
        run = self.run
        if run is not None and run.lane == lane:
            run.last, run.to_offset, run.records = poll, last, run.records + records
        else:
            before = self.ended.pop(run.lane, None) if run is not None else None
            why = "first in the queue" if run is None else f"{before}, this is next" if before else self.turn
            run = self.run = self._line(poll, "returned", why)
            run.lane, run.from_offset, run.to_offset, run.records = lane, first, last, records
            self.reason = why
        run.said = f"{counted(run.records, 'record')} of {self._name(lane)}, offsets {run.from_offset:,} to {run.to_offset:,}: {self.reason}"

    def _line(self, poll: int, what: str, said: str) -> _Line:
        self.lines.append(_Line(what, said, poll, poll))
        return self.lines[-1]


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest, break_on_hyphens=False, break_long_words=False,
        replace_whitespace=False,
    )  # fmt: skip
