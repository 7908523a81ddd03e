"""Share groups in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import clock, seconds
from fletchlog.explain.session.groups import ENDS
from fletchlog.explain.session.share_values import moments_of, summary
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.explained import Explained
    from fletchlog.explain.session.share_groups import ShareGroup

MOST = 60


def share_groups_text(explained: Explained) -> Iterator[str]:
    """Of each share group its members, what each client had for how long, and its moments."""
    for group in explained.share_groups.values():
        yield f"  {group.id}: {counted(len(group.members), 'member')}, {summary(group)}"
        for client, work in group.work().items():
            held = f", {work.held:,} held at the end" if work.held else ""
            renewed = f", {counted(work.renewed, 'renewal')}" if work.renewed else ""
            yield f"    {explained.facts.name(client)} had {counted(work.delivered, 'record')}, the longest for {seconds(work.longest_us)}{renewed}{held}"
        for at, line in sorted([*_members(explained, group), *moments_of(group)])[:MOST]:
            yield f"    {clock(at)} {line}"


def _members(explained: Explained, group: ShareGroup) -> Iterator[tuple[int, str]]:
    for member in group.members.values():
        yield member.joined_us, f"{member.id} ({explained.facts.name(member.client)}) joined"
        if member.how and member.ended_us is not None:
            yield member.ended_us, f"{member.id} {ENDS[member.how]}"
