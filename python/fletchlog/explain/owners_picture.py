"""The picture of an assignment: one row per member, one column per partition; before and after side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.explain.shapes import ACCENTS, INK, LEFT, PAPER, QUIET, SOFT, WIDTH, Bar, Drawing, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fletchlog.explain.owners import Ownership

ROW, GAP = 22.0, 40.0
NAMES, IDLE = 150.0, 36.0


def draw(stages: Sequence[tuple[str, Sequence[Ownership]]]) -> Drawing:
    """One panel per assignor and stage (`before`, `after m4 joins`), stages next to each other.

    Args:
        stages: Title and assignments of each stage; the same assignors in the same order.
    """
    drawing = Drawing(headline="Who owns which partition?")
    drawing.shapes.append(Text(LEFT, 30, drawing.headline, 20, bold=True))
    width = (WIDTH - LEFT * 2 - GAP * (len(stages) - 1)) / len(stages)
    y = 58.0
    for number in range(len(stages[0][1])):
        bottoms = [
            _panel(drawing, owners[number], f"{owners[number].assignor}{f', {title}' if title else ''}", LEFT + place * (width + GAP), y, width)
            for place, (title, owners) in enumerate(stages)
        ]
        y = max(bottoms) + 22
    drawing.height = y
    return drawing


def _panel(drawing: Drawing, found: Ownership, title: str, x: float, y: float, width: float) -> float:
    add = drawing.shapes.append
    columns = [(topic, p) for topic in sorted(found.topics) for p in range(found.topics[topic])]
    topics = sorted(found.topics)
    cell = min(34.0, (width - NAMES - IDLE) / max(1, len(columns)))
    moved = set(found.moved)
    add(Text(x, y + 8, title, 14, bold=True))
    said = f"{len(moved)} of {len(columns)} partitions moved" if moved else ""
    if found.rounds > 1:
        said += f", in {found.rounds} rebalances"
    add(Text(x + width, y + 8, said, 11, QUIET, "end"))
    y += 26
    for number, topic in enumerate(topics):
        first = columns.index((topic, 0)) if found.topics[topic] else 0
        add(Text(x + NAMES + first * cell + 1, y + 6, topic, 11, ACCENTS[number % len(ACCENTS)], bold=True))
    y += 18
    for member in sorted(found.owners):
        idle = member in found.idle
        add(Text(x, y + ROW / 2 - 2, member, 12, QUIET if idle else INK))
        for place, (topic, p) in enumerate(columns):
            left = x + NAMES + place * cell
            mine = p in found.owners[member].get(topic, [])
            # no stripes for further topics: columns are under their topic's name, and what moved has a line of its own
            add(Bar(left, y, cell - 2, ROW - 4, ACCENTS[topics.index(topic) % len(ACCENTS)] if mine else SOFT))
            if mine and cell > 13:  # noqa: PLR2004 - two digits fit
                add(Text(left + (cell - 2) / 2, y + ROW / 2 - 2, str(p), 11, PAPER, "middle", bold=True))
            if mine and (topic, p) in moved:
                add(Bar(left, y + ROW - 7, cell - 2, 3, INK))
        if idle:
            add(Text(x + NAMES + len(columns) * cell + 6, y + ROW / 2 - 2, "idle", 11, QUIET))
        y += ROW
    if moved:
        add(Bar(x + NAMES, y + 5, 14, 3, INK))
        add(Text(x + NAMES + 20, y + 6, "had another owner before", 11, QUIET))
    return y + 12
