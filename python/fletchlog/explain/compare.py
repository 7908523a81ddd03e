"""Several orders of the same topics: the rows of the decision table, KIP-387, and where two runs first differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from fletchlog._core import decision_rows, parse_release
from fletchlog.errors import InvalidArgumentError
from fletchlog.explain import run
from fletchlog.explain._story import tell
from fletchlog.explain.run import ORDER, VERSION, default
from fletchlog.explain.words import decision, sentence_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog._place import Source
    from fletchlog.explain._story import Step, Story
    from fletchlog.explain.run import Explanation


def _rows() -> dict[str, str]:
    usual = parse_release(default(VERSION))
    rows = {}
    for first, last, _ in decision_rows():
        release = usual if first <= usual <= last else last
        rows[_name(release)] = _name(first) if first == last else f"{_name(first)} - {_name(last)}"
    return rows


def _name(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


ROWS = _rows()
"""A release of each row of the decision table, and the releases that decide as it does."""

JAVA = "Java client "
KIP_387 = "kip-387"
SAME = ": the same"
NAMED = {KIP_387: "KIP-387", "timestamp": "By timestamp"}
"""Orders that no release has."""


@dataclass(frozen=True)
class Parting:
    """Where two runs part.

    Attributes:
        poll: Number of the poll, 0 before the first.
        decision: Number of the decision in it, from 1.
        first: What the first run decides there; None: nothing more.
        second: What the second decides.
    """

    poll: int
    decision: int
    first: str | None
    second: str | None

    def __str__(self) -> str:
        return f"at poll {self.poll}, decision {self.decision}: {self.first or 'nothing more'} / {self.second or 'nothing more'}"


def parting(one: Story, other: Story) -> Parting | None:
    """The first decision in which two runs differ; None if all are the same.

    The program's calls and lookups of positions count, the numbers of the stories' lanes do not. If one run stops earlier, they
    differ at its end.
    """
    lanes = sorted(set(one.lanes) | set(other.lanes))
    numbers = {lane: number for number, lane in enumerate(lanes)}
    one_is, other_is = ([numbers[lane] for lane in story.lanes] for story in (one, other))
    left_out: tuple[dict[str, set[int]], dict[str, set[int]]] = ({}, {})
    for poll in range(max(len(one.polls), len(other.polls))):
        mine, theirs = (story.polls[poll] if poll < len(story.polls) else [] for story in (one, other))
        for place in range(max(len(mine), len(theirs))):
            a, b = (steps[place] if place < len(steps) else None for steps in (mine, theirs))
            if _renamed(a, one_is) != _renamed(b, other_is):
                said = [decision(story, step, out) if step else None for story, step, out in ((one, a, left_out[0]), (other, b, left_out[1]))]
                return Parting(poll, place + 1, *said)
            for story, step, out in ((one, a, left_out[0]), (other, b, left_out[1])):
                if step is not None and step[0] == "skip":
                    sentence_of(story, step, out)
    return None


def against(
    source: Source,
    topics: Sequence[str],
    config: Mapping[str, Any] | None,
    orders: Sequence[str],
    *,
    polls: int,
    subscribe: bool = False,
    title: str = "",
) -> list[Explanation]:
    """The same topics under each of `orders`: a release (`3.9`), `kip-387` or `timestamp`, the rest of the properties unchanged.

    Raises:
        fletchlog.errors.InvalidArgumentError: None of these.
    """
    return [run.polls(source, topics, dict(config or {}) | order_config(order), polls=polls, subscribe=subscribe, title=title) for order in orders]


def order_config(order: str) -> dict[str, str]:
    """The properties that select an order.

    Raises:
        fletchlog.errors.InvalidArgumentError: No such order.
    """
    if order in NAMED:
        return {ORDER: order}
    parts = order.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):  # noqa: PLR2004 - major and minor
        raise InvalidArgumentError(f"cannot compare with {order}: give kip-387, timestamp, a client release such as 3.9, or a saved trace")
    return {VERSION: order, ORDER: "partition"}


def every_order(explanation: Explanation) -> list[str]:
    """One release of every other row of the decision table, and KIP-387: everything this run can be compared with."""
    if explanation.order in NAMED:
        return [*ROWS, *(name for name in (KIP_387,) if name != explanation.order)]
    mine = parse_release(explanation.release)
    rows = [release for release, row in ROWS.items() if not _in_row(mine, row)]
    return [*rows, KIP_387]


def subject(title: str) -> str:
    """What a title names, for a sentence."""
    return title.removesuffix(SAME)


def title(explanation: Explanation) -> str:
    """Whose order it is, with the releases that share its row, or with the orders that decide the same in this run."""
    if explanation.same:
        return f"{', '.join([whose(explanation), *explanation.same])}{SAME}"
    row = "" if explanation.order in NAMED else next((row for row in ROWS.values() if _in_row(parse_release(explanation.release), row)), "")
    return whose(explanation) + (f" (as {row})" if " - " in row else "")


def whose(explanation: Explanation) -> str:
    """Whose order it is: `Java client 4.3`, `KIP-387`."""
    return NAMED.get(explanation.order, f"{JAVA}{explanation.release}")


def distinct(explanations: Sequence[Explanation]) -> list[Explanation]:
    """The same explanations, aligned; of those from one source that decide the same, to the end, only the first one, which then names the others."""
    groups: list[list[Explanation]] = []
    for item in align(explanations):
        group = next((g for g in groups if g[0].source == item.source and whose(g[0]) != whose(item) and parting(g[0].story, item.story) is None), None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    return [replace(first, same=_named(first, rest)) if rest else first for first, *rest in groups]


def _named(first: Explanation, rest: Sequence[Explanation]) -> tuple[str, ...]:
    names = [whose(item) for item in (first, *rest)]
    # "Java client 3.1, 3.6"
    return tuple(name.removeprefix(JAVA) if before.startswith(JAVA) else name for before, name in pairwise(names))


def titles(explanations: Sequence[Explanation]) -> list[str]:
    """The title of each; those that have the same one are distinguished by the file they come from."""
    plain = [title(explanation) for explanation in explanations]
    return [
        f"{name}: {PurePath(explanation.source).name}" if plain.count(name) > 1 and explanation.source else name
        for name, explanation in zip(plain, explanations, strict=True)
    ]


def align(explanations: Sequence[Explanation]) -> list[Explanation]:
    """The same explanations with the same lanes under the same numbers."""
    lanes = sorted({lane for item in explanations for lane in item.story.lanes})
    ends = {lane: end for item in explanations for lane, end in item.ends.items()}
    return [item if item.story.lanes == lanes else replace(item, story=tell(item.trace, lanes), ends=item.ends or ends) for item in explanations]


def _in_row(release: tuple[int, int], row: str) -> bool:
    first, _, last = row.partition(" - ")
    return parse_release(first) <= release <= parse_release(last or first)


def _renamed(step: Step | None, names: list[int]) -> Any:
    if step is None:
        return None

    def lane(number: Any) -> Any:
        return names[number] if isinstance(number, int) and number >= 0 else number

    match step:
        case ("call", method, given, epoch):
            return ("call", method, [(lane(n), offset) for n, offset in given], epoch)
        case ("order", lanes):
            return ("order", [lane(n) for n in lanes])
        case ("ask", node, full, asked, forgotten):
            return ("ask", node, full, [(lane(n), offset) for n, offset in asked], sorted(lane(n) for n in forgotten))
        case ("answer", node, full, parts, error):
            return ("answer", node, full, [(lane(p[0]), *p[1:]) for p in parts], error)
        case ("skip", reason, came, went):
            return ("skip", reason, sorted(lane(n) for n in came), sorted(lane(n) for n in went))
        case ("return", _):
            return step
        case (kind, number, *rest):
            return (kind, lane(number), *rest)
    return step
