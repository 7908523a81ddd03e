"""Pictures of the poll order: one lane per partition, polls from left to right, several orders above each other.

Needs the extra `plot` (matplotlib). Drawing is deterministic: the same polls give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.explain.shapes import STRIPE, STRIPE_OPACITY, STRIPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from fletchlog.types import Run

# Okabe and Ito's palette: told apart with any kind of colour vision. More partitions start again, with stripes.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#8C564B")
GREY = "#5f6670"
# a bar gets its number when it is at least this wide (inches), so that numbers never overlap
NUMBER_INCHES = 0.42


@dataclass(frozen=True)
class Stretch:
    """Records that came one after the other from one partition, over as many polls as it took."""

    topic: str
    partition: int
    records: int
    first_poll: int
    last_poll: int
    start: float
    """Left edge in polls: 2.5 is the middle of the third poll."""
    end: float


@dataclass(frozen=True)
class PollOrder:
    """One order to draw: what each poll took from the queue (`Records.runs()`), in turn."""

    title: str
    polls: Sequence[Sequence[Run]]

    def stretches(self) -> list[Stretch]:
        """Consecutive runs of the same partition joined. Inside a poll the width of a run is its share of the records."""
        found: list[Stretch] = []
        for number, runs in enumerate(self.polls):
            total = sum(run.count for run in runs)
            done = 0
            for run in runs:
                start, end = number + done / total, number + (done + run.count) / total
                done += run.count
                last = found[-1] if found else None
                if last is not None and (last.topic, last.partition) == (run.topic, run.partition):
                    joined = Stretch(run.topic, run.partition, last.records + run.count, last.first_poll, number, last.start, end)
                    found[-1] = joined
                else:
                    found.append(Stretch(run.topic, run.partition, run.count, number, number, start, end))
        return found


def run_lengths(stretches: Iterable[Stretch]) -> dict[tuple[str, int], list[int]]:
    """Records in a row, per partition. The last stretch of a drawing that stops early is as long as what was polled."""
    lengths: dict[tuple[str, int], list[int]] = {}
    for stretch in stretches:
        lengths.setdefault((stretch.topic, stretch.partition), []).append(stretch.records)
    return lengths


def poll_order(path: str | PathLike[str], orders: Sequence[PollOrder], *, title: str, lanes: Sequence[tuple[str, int]] = ()) -> None:
    """Draws `orders` above each other, with the same lanes and the same scale, as PNG or SVG by the name of `path`.

    Args:
        path: File to write.
        orders: What to draw; all start at poll 1 and are drawn to the length of the longest.
        title: Headline.
        lanes: Topic and partition of each lane from top to bottom; default: all that occur, by name.

    Raises:
        ValueError: Nothing to draw.
        ImportError: matplotlib is missing.
    """
    if not any(order.polls for order in orders):
        raise ValueError("nothing to draw: no poll returned a record")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    drawn = [(order, order.stretches()) for order in orders]
    lanes = list(lanes) or sorted({(s.topic, s.partition) for _, stretches in drawn for s in stretches})
    colours = {lane: COLOURS[i % len(COLOURS)] for i, lane in enumerate(lanes)}
    polls = max(len(order.polls) for order in orders)
    panel = 1.25 + 0.36 * len(lanes)
    figure = Figure(figsize=(14, 1.15 + panel * len(orders)), dpi=110, facecolor="white", layout=ConstrainedLayoutEngine(h_pad=0.09))
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=16, fontweight="bold", x=0.01, ha="left")
    axes = figure.subplots(len(orders), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (order, stretches) in zip(axes, drawn, strict=True):
        _panel(axis, order, stretches, lanes, colours, polls)
    axes[-1].set_xlabel("poll() calls, one after the other", fontsize=11, color=GREY)
    figure.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)


def _panel(
    axis: Any,
    order: PollOrder,
    stretches: list[Stretch],
    lanes: Sequence[tuple[str, int]],
    colours: dict[tuple[str, int], str],
    polls: int,
) -> None:
    # lane 0 is the ribbon: everything as the program receives it; a narrow gap, then one lane per partition
    rows = {lane: i + 1.45 for i, lane in enumerate(lanes)}
    inches = 10.6 / polls
    for stretch in stretches:
        lane = (stretch.topic, stretch.partition)
        if lane not in rows:
            continue
        width = stretch.end - stretch.start
        for top, height in ((-0.42, 0.84), (rows[lane] - 0.38, 0.76)):
            axis.broken_barh([(stretch.start, width)], (top, height), facecolors=colours[lane], edgecolors="white", linewidth=0.3)
            for edge in STRIPES[lanes.index(lane) // len(COLOURS) % len(STRIPES)]:
                axis.broken_barh([(stretch.start, width)], (top + edge * height, STRIPE * height), facecolors="black", alpha=STRIPE_OPACITY)
        if width * inches >= NUMBER_INCHES:
            axis.text(
                stretch.start + width / 2, rows[lane], f"{stretch.records:,}", ha="center", va="center", fontsize=9,
                color="white" if colours[lane] in {"#0072B2", "#8C564B"} else "black", fontweight="bold",
            )  # fmt: skip
    lengths = run_lengths(stretches)
    for lane, row in rows.items():
        axis.axhline(row + 0.5, color="#e4e7eb", linewidth=0.7, zorder=0)
        axis.text(polls * 1.008, row, _numbers(lengths.get(lane, [])), va="center", ha="left", fontsize=9.5, color=GREY)
    every = [records for item in lengths.values() for records in item]
    axis.text(polls * 1.008, 0, _numbers(every), va="center", ha="left", fontsize=9.5, color="black", fontweight="bold")
    axis.text(polls * 1.008, -0.95, "runs x typical length (longest)", va="center", ha="left", fontsize=8.5, color=GREY, style="italic")
    axis.set_title(order.title, loc="left", fontsize=12.5, fontweight="bold", pad=9)
    axis.set_yticks([0, *rows.values()], ["all, as received", *(f"{topic}-{partition}" for topic, partition in lanes)], fontsize=10)
    axis.get_yticklabels()[0].set_fontweight("bold")
    axis.set_ylim(rows[lanes[-1]] + 0.6, -0.6)
    axis.set_xlim(0, polls)
    axis.tick_params(axis="both", length=0, colors="black")
    axis.tick_params(axis="x", labelbottom=True, colors=GREY)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c3c8ce")


def _numbers(lengths: list[int]) -> str:
    if not lengths:
        return "no records"
    typical = sorted(lengths)[len(lengths) // 2]
    return f"{len(lengths)} x {typical:,} ({max(lengths):,})"
