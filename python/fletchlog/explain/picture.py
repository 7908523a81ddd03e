"""Pictures of runs as SVG and PNG: one lane per partition over the polls, what waits in the queue behind, requests marked.

Both are made from the same list of shapes. PNG needs the extra `plot` (matplotlib). The same runs give the same bytes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fletchlog.errors import InvalidArgumentError
from fletchlog.explain._fairness import fairness
from fletchlog.explain.compare import align, distinct, title, whose
from fletchlog.explain.shapes import ACCENTS, DIGIT, INK, LEFT, PAPER, QUIET, SOFT, WIDTH, Bar, Drawing, Text, lane_bars, to_png, to_svg
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fletchlog.explain._story import Story
    from fletchlog.explain.run import Explanation
    from fletchlog.types import TopicPartition

RIGHT = 132.0
CARD_HEIGHT = 630.0


@dataclass
class Spans:
    """One run over the polls; x is in polls, 2.5 is the middle of the third."""

    ribbon: list[tuple[int, float, float, int]] = field(default_factory=list)
    """(lane, from, to, records) in the order received."""
    runs: dict[int, list[tuple[float, float, int]]] = field(default_factory=dict)
    waits: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    asks: dict[int, list[float]] = field(default_factory=dict)


def svg(explanations: Sequence[Explanation], headline: str = "Which partition does each poll() return?", *, dark: bool = True) -> str:
    """The picture as SVG text, one panel per run, all with the same lanes and scale. Runs that decide the same share a panel.

    Args:
        explanations: The runs.
        headline: Headline.
        dark: Light or dark as its viewer prefers; else light.

    Raises:
        fletchlog.errors.InvalidArgumentError: Nothing to draw.
    """
    return to_svg(draw(explanations, headline), dark=dark)


def png(explanations: Sequence[Explanation], headline: str = "Which partition does each poll() return?") -> bytes:
    """The picture as a PNG of twice the size.

    Raises:
        fletchlog.errors.InvalidArgumentError: Nothing to draw.
        ModuleNotFoundError: matplotlib is missing.
    """
    return to_png(draw(explanations, headline))


def draw(explanations: Sequence[Explanation], headline: str, *, titles: Sequence[str] = (), polls: int | None = None) -> Drawing:
    """The shapes of the picture.

    Args:
        explanations: The runs.
        headline: Headline.
        titles: One for each run; without them: whose order it is.
        polls: So many polls of each run; None: all.

    Raises:
        fletchlog.errors.InvalidArgumentError: Nothing to draw.
    """
    if not any(item.polls for item in explanations):
        raise InvalidArgumentError("nothing to draw: no poll returned a record")
    items = [replace(item, story=replace(item.story, polls=item.story.polls[: polls and polls + 1])) for item in (align if titles else distinct)(explanations)]
    lanes = items[0].story.lanes
    count = len(lanes)
    row = 26.0 if count <= 8 else 20.0 if count <= 16 else 13.5 if count <= 60 else 8.5  # noqa: PLR2004 - by what still can be read
    size = min(12.0, row * 0.72)
    gutter = LEFT + 12 + min(190.0, max(90.0, max(len(str(lane)) for lane in lanes) * size * 0.6))
    drawing = Drawing(headline=headline)
    drawing.shapes.append(Text(LEFT, 30, headline, 20, bold=True))
    width = max(len(item.polls) for item in items)
    y = 56.0
    for item, name in zip(items, titles or map(title, items), strict=True):
        y = _Panel(drawing, item, name, width, gutter, row, size).draw(y)
    drawing.height = _legend(drawing, y)
    return drawing


def card(one: Explanation, other: Explanation) -> Drawing:
    """Two orders and what they mean in one sentence, as wide and high as the previews of links: 1200 x 630.

    Raises:
        fletchlog.errors.InvalidArgumentError: Nothing to draw.
    """
    items = align([one, other])
    if not any(item.polls for item in items):
        raise InvalidArgumentError("nothing to draw: no poll returned a record")
    lanes = items[0].story.lanes
    row = min(26.0, (CARD_HEIGHT - 288.0) / 2 / len(lanes))
    size = min(12.0, row * 0.72)
    gutter = LEFT + 12 + min(190.0, max(90.0, max(len(str(lane)) for lane in lanes) * size * 0.6))
    drawing = Drawing(headline=_sentence(items), height=CARD_HEIGHT)
    drawing.shapes.append(Text(LEFT, 40, drawing.headline, min(28.0, (WIDTH - 2 * LEFT) / len(drawing.headline) / 0.56), bold=True))
    named = ", ".join(dict.fromkeys(lane.topic for lane in lanes))
    drawing.shapes.append(Text(LEFT, 72, f"poll() of {counted(len(lanes), 'partition')}: {named[:90]}", 15, QUIET))
    y = 108.0
    for item in items:
        y = _Panel(drawing, item, title(item), max(len(i.polls) for i in items), gutter, row, size).draw(y)
    _legend(drawing, CARD_HEIGHT - 28)
    drawing.shapes.append(Text(WIDTH - LEFT, CARD_HEIGHT - 22, "fletchlog explain --card", 12, QUIET, "end"))
    return drawing


def _sentence(items: Sequence[Explanation]) -> str:
    """Who waits for how long."""
    (one, waits), (other, less) = ((whose(item), fairness(item.polls, item.ends).worst_wait_polls) for item in items)
    waiting = f"a partition waits for its turn up to {counted(waits, 'poll')}" if waits else "no partition waits for its turn"
    if waits == less:
        return f"With {one} and with {other} {waiting}"
    return f"With {one} {waiting}, with {other} " + (f"up to {counted(less, 'poll')}" if less else "none waits")


class _Panel:
    def __init__(self, drawing: Drawing, item: Explanation, name: str, polls: int, gutter: float, row: float, size: float) -> None:
        self.add = drawing.shapes.append
        self.add_all = drawing.shapes.extend
        self.item = item
        self.name = name
        self.lanes = item.story.lanes
        self.polls = polls
        self.gutter = gutter
        self.row = row
        self.size = size
        self.spans = spans(item.story)

    def x(self, poll: float) -> float:
        return self.gutter + (WIDTH - RIGHT - self.gutter) * poll / self.polls

    def draw(self, y: float) -> float:
        records = sum(run[3] for run in self.spans.ribbon)
        asks = sum(step[0] == "ask" for steps in self.item.story.polls for step in steps)
        numbers = f"{counted(len(self.item.polls), 'poll')}, {counted(records, 'record')}, {counted(asks, 'request')}"
        self.add(Text(LEFT, y + 8, self.name, 14, bold=True))
        self.add(Text(WIDTH - RIGHT, y + 8, numbers, 12, QUIET, "end"))
        y += 26
        step = _nice(self.polls / 12)
        self.add(Text(LEFT + 12, y + 6, "poll", 11, QUIET))
        for poll in range(step, self.polls + 1, step):
            self.add(Text(self.x(poll - 0.5), y + 6, f"{poll:,}", 11, QUIET, "middle"))
        y = self._ribbon(y + 17)
        for lane in range(len(self.lanes)):
            self._lane(lane, y + lane * self.row)
        return y + len(self.lanes) * self.row + 26

    def _ribbon(self, y: float) -> float:
        self.add(Text(LEFT + 12, y + 10, "as received", 12, bold=True))
        self.add(Text(WIDTH - RIGHT + 12, y + 10, "runs \u00d7 typical", 11, QUIET))
        for lane, start, end, _ in self.spans.ribbon:
            left, width = self.x(start), self._width(start, end)
            self.add_all(lane_bars(lane, left, y, width, 20))
            name = next((n for n in (str(self.lanes[lane]), str(self.lanes[lane].partition)) if width > len(n) * 6.4 + 6), "")
            if name:
                self.add(Text(left + 4, y + 10, name, 11, PAPER, bold=True))
        return y + 28

    def _lane(self, lane: int, y: float) -> None:
        inner = self.row - (5 if self.row > 15 else 2.5)  # noqa: PLR2004
        middle = y + inner / 2
        self.add_all(lane_bars(lane, LEFT, y, 5, inner))
        self.add(Text(LEFT + 12, middle, str(self.lanes[lane]), self.size))
        self.add(Bar(self.gutter, middle - 0.5, WIDTH - RIGHT - self.gutter, 1, SOFT))
        for start, end in self.spans.waits.get(lane, []):
            self.add(Bar(self.x(start), y, self.x(end) - self.x(start), inner, ACCENTS[lane % len(ACCENTS)], 0.22))
        runs = self.spans.runs.get(lane, [])
        asks = [self.x(at) for at in self.spans.asks.get(lane, [])]
        for start, end, records in runs:
            left, width = self.x(start), self._width(start, end)
            self.add_all(lane_bars(lane, left, y, width, inner))
            number = f"{records:,}"
            free, room = _widest(left, left + width, asks)
            if room > len(number) * self.size * DIGIT + 5:
                self.add(Text(free + room / 2, middle, number, self.size, PAPER, "middle", bold=True))
        for at in asks:
            self.add(Bar(at - 0.7, y - 1, 1.4, inner + 2, INK))
        lengths = sorted(records for _, _, records in runs)
        self.add(Text(WIDTH - RIGHT + 12, middle, f"{len(lengths):,} \u00d7 {lengths[len(lengths) // 2]:,}" if lengths else "none", self.size, QUIET))

    def _width(self, start: float, end: float) -> float:
        width = self.x(end) - self.x(start)
        return max(0.5, width - (0.8 if width > 4 else 0))  # noqa: PLR2004 - a gap where it does not hide the bar


def _legend(drawing: Drawing, y: float) -> float:
    x = LEFT
    first = ACCENTS[0]
    for kind, text in (("run", "records handed out (number: records in a row)"), ("wait", "fetched, waiting in the queue"), ("ask", "asked for")):
        drawing.shapes.append(Bar(x + 9, y, 1.6, 11, INK) if kind == "ask" else Bar(x, y, 20, 11, first, 1.0 if kind == "run" else 0.22))
        drawing.shapes.append(Text(x + 27, y + 5.5, text, 11, QUIET))
        x += 52 + len(text) * 6.1
    return y + 30


def spans(story: Story) -> Spans:
    """Where runs, waiting data and requests are over the polls. Inside a poll the width of a run is its share of the records."""
    found = Spans()
    since: dict[int, float] = {}
    # records still to be taken; a fetch of which none is left keeps its place in the queue, but nothing waits in it
    left_of: dict[int, int] = {}
    for poll, steps in enumerate(story.polls):
        all_of_it = sum(step[4] for step in steps if step[0] == "take")
        left, done = float(max(0, poll - 1)), 0
        for step in steps:
            x = left + (done / all_of_it if all_of_it else 0.0)
            if step[0] == "take":
                done += step[4]
                end = left + done / all_of_it
                _extend(found, step[1], x, end, step[4])
                left_of[step[1]] = left_of.get(step[1], 0) - step[4]
                if step[1] in since and left_of[step[1]] <= 0:
                    found.waits.setdefault(step[1], []).append((since.pop(step[1]), end))
            elif step[0] == "ask":
                for lane, _ in step[3]:
                    found.asks.setdefault(lane, []).append(x)
            elif step[0] == "answer":
                for lane, records in ((part[0], part[2]) for part in step[3] if part[2]):
                    since[lane] = x
                    left_of[lane] = records if records > 0 else sys.maxsize
            elif step[0] in {"drained", "drop"} and step[1] in since:
                found.waits.setdefault(step[1], []).append((since.pop(step[1]), x))
    for lane, start in since.items():
        found.waits.setdefault(lane, []).append((start, float(len(story.polls) - 1)))
    return found


def run_lengths(story: Story) -> dict[TopicPartition, list[int]]:
    """How many records came in a row from each partition, over as many polls as it took."""
    return {story.lanes[lane]: [records for _, _, records in runs] for lane, runs in spans(story).runs.items()}


def _extend(found: Spans, lane: int, start: float, end: float, records: int) -> None:
    if found.ribbon and found.ribbon[-1][0] == lane:
        _, first, _, before = found.ribbon[-1]
        found.ribbon[-1] = (lane, first, end, before + records)
        found.runs[lane][-1] = (first, end, before + records)
        return
    found.ribbon.append((lane, start, end, records))
    found.runs.setdefault(lane, []).append((start, end, records))


def _widest(left: float, right: float, marks: Sequence[float]) -> tuple[float, float]:
    """Where a label meets no mark: start and width of the widest stretch between them."""
    edges = [left, *(mark for mark in marks if left < mark < right), right]
    return max(((a, b - a) for a, b in pairwise(edges)), key=lambda stretch: stretch[1])


def _nice(least: float) -> int:
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= least:
                return step * power
        power *= 10
