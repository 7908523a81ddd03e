"""The story in words, for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from fletchlog._core import decision_rows, parse_release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fletchlog.explain._story import Step, Story
    from fletchlog.explain.order import Place

WIDTH = 116


def counted(number: int, what: str, many: str = "") -> str:
    """`1 record`, `2,000 records`; `many`: a plural of another kind."""
    return f"{number:,} {what if number == 1 else many or what + ('es' if what.endswith(('ch', 's')) else 's')}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def request_order(places: Sequence[Place], buckets: int | None, release: str, *, subscribed: bool) -> list[str]:
    """Lines about the order in which partitions are asked for."""
    lines = ["In which order partitions are asked for"]
    if buckets is not None:
        kept = "taken by subscribe()" if subscribed else "given to assign()"
        lines += _wrap(
            f"The partitions {kept} are kept in a Java hash table, here of {counted(buckets, 'bucket')}, and asked for in the order in "
            "which it is walked: bucket by bucket, the partitions of a topic together from where the topic first occurs. The "
            "bucket is (h ^ h>>>16) & "
            f"{buckets - 1} with h = 31 * (31 + partition) + hash of the topic's name, so it is stable, but not the order given."
        )
    elif subscribed and any(first <= parse_release(release) <= last and is_sorted for first, last, is_sorted in decision_rows()):
        lines += _wrap(f"Since release 4.2 the partitions of a subscription are sorted by topic and partition; {release} does so.")
    else:
        lines += _wrap("This is the order that the consumer computed for its partitions.")
    width = max((len(str(place)) for place in places), default=0)
    for number, place in enumerate(places, 1):
        table = "" if place.bucket is None else f"   hash {place.hash:>11}   bucket {place.bucket:>3}"
        lines.append(f"  {number:>3}. {place!s:<{width}}   node {place.node}{table}")
    return lines


def poll_by_poll(story: Story, rule: str) -> list[str]:
    """Lines about every poll; consecutive polls of one buffered partition share a line."""
    lines = [f"Poll by poll ({rule})"]
    left_out: dict[str, set[int]] = {}
    parts = [(n, sentences(story, steps, left_out), _alike(steps)) for n, steps in enumerate(story.polls) if n > 0]
    index = 0
    while index < len(parts):
        number, said, kind = parts[index]
        last = index
        while kind is not None and last + 1 < len(parts) and parts[last + 1][2] == kind:
            last += 1
        lines += _wrap(f"poll {number}: {said[0]}", "  ", "      ")
        for sentence in said[1:]:
            lines += _wrap(sentence, "      ", "        ")
        if last > index:
            until = parts[last][0]
            lines.append(f"  poll {number + 1}{f' to {until}' if until > number + 1 else ''}: the same, with the records that follow")
        index = last + 1
    return lines


def sentences(story: Story, steps: Sequence[Step], left_out: dict[str, set[int]]) -> list[str]:
    """Sentences about one poll, in the order in which things happened. `left_out` goes from poll to poll."""
    found = [sentence for step in steps for sentence in [sentence_of(story, step, left_out)] if sentence]
    return found or ["nothing to do"]


def _alike(steps: Sequence[Step]) -> tuple[int, int] | None:
    rest = [step for step in steps if step[0] not in {"return", "skip"}]
    if len(rest) != 1 or rest[0][0] != "take":
        return None
    return (rest[0][1], rest[0][4])


def sentence_of(story: Story, step: Step, left_out: dict[str, set[int]]) -> str | None:
    """One step as a sentence; None where nothing is worth telling."""

    def name(lane: int) -> str:
        return str(story.lanes[lane])

    def because(text: str) -> str:
        return f": {text}" if text else ""

    match step:
        case ("call", method, given, epoch):
            return f"the program calls {method}({', '.join(arguments(story, given, epoch))})"
        case ("ask", node, full, asked, forgotten):
            wanted = ", ".join(f"{name(lane)} from {offset:,}" for lane, offset in asked)
            kind = " (a full fetch)" if full else " (only what changed)"
            out = f"; it may forget {', '.join(map(name, forgotten))}" if forgotten else ""
            return f"asks node {node}{kind} {f'for {wanted}' if wanted else 'again for the same'}{out}"
        case ("answer", node, _, parts, error):
            queued = ", ".join(f"{name(part[0])}{_size(part)}" for part in parts)
            failed = f" with {error}" if error else ""
            came = f"to the end of the queue go, in this order: {queued}" if queued else "it brings nothing"
            return f"reads the answer of node {node}{failed}; {came}"
        case ("skip", reason, came, went):
            now = (left_out.get(reason, set()) | set(came)) - set(went)
            left_out[reason] = now
            # without a position nothing can be asked for; the next steps say what happens
            return None if "no position" in reason or not came else f"asks nothing about {', '.join(map(name, sorted(now)))}: {reason}"
        case ("take", lane, first, last, records):
            return f"takes {counted(records, 'record')} of {name(lane)}, offsets {first:,} to {last:,}"
        case ("late", lane, records):
            are, them = ("is", "it") if records == 1 else ("are", "them")
            return f"{counted(records, 'record')} of {name(lane)} {are} late: older than one returned before {them}"
        case ("drained", lane, why):
            return f"{name(lane)} is used up{because(why)}; the next in the queue has its turn"
        case ("rotate", lane, why):
            return f"{name(lane)} goes behind all others in the order of requests{because(why)}"
        case ("park", lane):
            return f"{name(lane)} is paused, what was fetched of it goes to the end of the queue"
        case ("drop", lane, why):
            return f"what was fetched of {name(lane)} is thrown away{because(why)}"
        case ("place", lane, offset, how, _):
            return f"position of {name(lane)}{because(how)}{f': {offset:,}' if offset >= 0 else ''}"
        case ("error", lane, node, text):
            where = name(lane) if lane >= 0 else f"node {node}" if node >= 0 else ""
            return f"error at {where}{because(text)}" if where else text
        case ("return", 0):
            return "returns nothing"
    return None


def decision(story: Story, step: Step, left_out: dict[str, set[int]]) -> str:
    """As `sentence_of`, with a sentence also for what is not worth telling on its own."""
    said = sentence_of(story, step, left_out)
    if said and step[0] != "skip":
        return said

    def names(lanes: Sequence[int]) -> str:
        return ", ".join(str(story.lanes[lane]) for lane in lanes)

    match step:
        case ("skip", reason, came, went):
            now = said or (f"asks nothing about {names(came)}: {reason}" if came else "")
            again = f"may ask about {names(went)} again, left out till now: {reason}" if went else ""
            return "; ".join(part for part in (now, again) if part) or f"leaves out the same partitions: {reason}"
        case ("order", lanes):
            return f"asks for its partitions in this order: {names(lanes)}" if lanes else "has no partitions"
        case ("return", records):
            return f"returns {counted(records, 'record')}"
    return str(step[0])


def arguments(story: Story, given: Sequence[tuple[int | str, int]], epoch: int) -> list[str]:
    """What a program's call was given."""
    named = [f"{lane if isinstance(lane, str) else story.lanes[lane]}{f' at {offset:,}' if offset >= 0 else ''}" for lane, offset in given]
    return [*named, f"leader epoch {epoch}"] if epoch >= 0 else named


def _size(part: Sequence[int]) -> str:
    records, batches = part[2], part[4]
    if records < 0 or batches < 0:
        return ""
    return f" ({counted(records, 'record')} in {counted(batches, 'batch')})" if records else " (empty)"


def _wrap(text: str, first: str = "  ", rest: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False)
