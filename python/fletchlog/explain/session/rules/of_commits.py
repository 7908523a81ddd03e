"""Commits and where consumers begin: none at all, too many, from several consumers, backwards; the end of the log, or behind its start."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from fletchlog.explain.session.columns import np, split
from fletchlog.explain.session.finding import found, seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.session.lag import written_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.finding import Finding, Scene
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.rows import Committed, Lane

LEAST_RECORDS = 10
MANY_COMMITS = 40
# a consumer with the default auto.commit.interval.ms has committed by then
LONG_US = 15_000 * MS
LATEST = -1
OFFSET_OUT_OF_RANGE = 1
"""Kafka's error code."""


def rule(scene: Scene) -> Iterator[Finding]:
    """Findings about commits and positions."""
    by: dict[str, list[Committed]] = {}
    for commit in scene.facts.committed:
        by.setdefault(commit.group, []).append(commit)
    for group in scene.groups.values():
        yield from _never(scene, group, by.get(group.id, []))
    for name, commits in by.items():
        shared = list(_simple(scene, name, commits))
        yield from shared
        if not shared:
            yield from _back(scene, name, commits)
        yield from _often(scene, name, commits)
        yield from _in_rebalance(scene, name, commits)
    yield from _out_of_range(scene)
    yield from _latest(scene)


def _read_by(scene: Scene, group: Group) -> int:
    fetches = scene.facts.fetches
    return int(fetches.got.records[np.isin(fetches.client[fetches.got.fetch], group.clients)].sum())


def _never(scene: Scene, group: Group, commits: list[Committed]) -> Iterator[Finding]:
    if any(commit.error is None for commit in commits) or not group.members:
        return
    records = _read_by(scene, group)
    ended = all(member.how for member in group.members.values())
    length = scene.facts.last_us - min(member.joined_us for member in group.members.values())
    if records >= LEAST_RECORDS and not commits and (ended or length > LONG_US):
        yield found(
            "never-commits", "error", 84,
            f"Group {group.id} read {records} records and committed no offset: after a restart it reads them again, or begins where auto.offset.reset says.",
            "Call commit() after the work, or leave enable.auto.commit at true.", [member.joined_by for member in group.members.values()], group.id,
        )  # fmt: skip


def _simple(scene: Scene, name: str, commits: list[Committed]) -> Iterator[Finding]:
    """Consumers with assign() that share a group: nobody divides partitions between them."""
    simple = [commit for commit in commits if commit.generation < 0 and not commit.transactional]
    by: dict[Lane, dict[int, Committed]] = {}
    for commit in simple:
        by.setdefault(commit.lane, {})[commit.connection] = commit
    # one program after the other is a restart
    links = scene.facts.connections
    spans = {c.connection: (links[c.connection].first_us, links[c.connection].last_us) for c in simple}
    shared = {lane: found_by for lane, found_by in by.items() if _overlap([spans[connection] for connection in found_by])}
    members = scene.groups.get(name)
    if shared:
        clients = several(scene.name(commit.client) for found_by in shared.values() for commit in found_by.values())
        yield found(
            "group-shared-by-assign", "error", 87,
            f"Several consumers without a subscription (assign) commit {several(map(str, shared))} in group {name} at the same time ({clients}): each reads "
            "everything, and each overwrites the other's offsets.",
            "Use subscribe(), so that the group divides the partitions, or give each consumer a group.id of its own.",
            [commit.number for commit in simple if commit.lane in shared], name,
        )  # fmt: skip
    refused = [commit for commit in simple if commit.error in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}]
    if refused and members and members.members:
        yield found(
            "group-shared-by-assign", "error", 87,
            f"{several(scene.name(commit.client) for commit in refused)} uses assign() with group {name}, which other consumers subscribe with: its "
            "commits are refused.",
            "Give the consumer with assign() a group.id of its own.", [commit.number for commit in refused], name,
        )  # fmt: skip


def _overlap(spans: list[tuple[int, int]]) -> bool:
    ordered = sorted(spans)
    return any(later[0] < earlier[1] for earlier, later in pairwise(ordered))


def _back(scene: Scene, name: str, commits: list[Committed]) -> Iterator[Finding]:
    furthest: dict[Lane, Committed] = {}
    back: list[tuple[Committed, Committed]] = []
    for commit in commits:
        if commit.error:
            continue
        before = furthest.get(commit.lane)
        if before and commit.offset < before.offset:
            back.append((before, commit))
        furthest[commit.lane] = commit
    if back:
        before, after = back[0]
        yield found(
            "commit-went-back", "error", 83,
            f"{scene.name(after.client)} committed {after.lane} at {after.offset} in group {name} after {before.offset} had been committed by "
            f"{scene.name(before.client)}: {before.offset - after.offset} records will be read again.",
            "Commit in order: wait for a commit before the next one is sent, commit the lowest offset whose work is done, and no older one from "
            "another thread.",
            [commit.number for pair in back for commit in pair], name,
        )  # fmt: skip


def _often(scene: Scene, name: str, commits: list[Committed]) -> Iterator[Finding]:
    numbers = {commit.number: commit for commit in commits if not commit.transactional}
    if len(numbers) < MANY_COMMITS:
        return
    first, last = min(commits), max(commits)
    bounds: dict[Lane, tuple[int, int]] = {}
    for commit in commits:
        low, high = bounds.get(commit.lane, (commit.offset, commit.offset))
        bounds[commit.lane] = min(low, commit.offset), max(high, commit.offset)
    moved = sum(high - low for low, high in bounds.values())
    if len(numbers) * 1.5 >= moved and last.at_us - first.at_us < len(numbers) * 500_000:
        yield found(
            "commits-too-often", "warning", 52,
            f"{scene.name(first.client)} commits after almost every record: {len(numbers)} commits in group {name} for {moved} records, in "
            f"{seconds(last.at_us - first.at_us)}. Each is a request that it waits for, and a record in __consumer_offsets.",
            "Commit once a poll, or every few seconds.", list(numbers), name,
        )  # fmt: skip


def _in_rebalance(scene: Scene, name: str, commits: list[Committed]) -> Iterator[Finding]:
    # librdkafka may commit without its member id after it has left
    has_left = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
    lost = [c for c in commits if c.error == "REBALANCE_IN_PROGRESS" or (c.error in has_left and c.generation >= 0 and not c.member)]
    saved: dict[Lane, int] = {}
    for commit in commits:
        if commit.error is None:
            saved[commit.lane] = max(saved.get(commit.lane, -1), commit.offset)
    lost = [commit for commit in lost if saved.get(commit.lane, -1) < commit.offset]
    if lost:
        yield found(
            "commit-lost-in-rebalance", "error", 79,
            f"A commit of {several(scene.name(commit.client) for commit in lost)} in group {name} was refused because of a rebalance, or of its leaving "
            f"({several(f'{commit.lane} at {commit.offset}' for commit in lost)}) and never repeated: these records are read again.",
            "Commit in on_partitions_revoked, and repeat a commit that fails with REBALANCE_IN_PROGRESS after the next "
            "poll.", [commit.number for commit in lost], name,
        )  # fmt: skip


def _out_of_range(scene: Scene) -> Iterator[Finding]:
    if not any(refused.error == "OFFSET_OUT_OF_RANGE" for refused in scene.facts.refused):
        return
    fetches, got = scene.facts.fetches, scene.facts.fetches.got
    failed = np.flatnonzero(got.error == OFFSET_OUT_OF_RANGE)
    for row in failed[:1].tolist():
        fetch, lane, asked = int(got.fetch[row]), fetches.names.lanes[got.lane[row]], int(got.asked[row])
        client, number = int(fetches.client[fetch]), int(fetches.number[fetch])
        later = next((p for p in scene.facts.positions if p.client == client and p.lane == lane and p.number > number and p.timestamp in {-1, -2}), None)
        starts = got.log_start[(got.lane == got.lane[row]) & (got.log_start >= 0) & (got.fetch > fetch)]
        start = int(starts[0]) if len(starts) else -1
        if later and later.timestamp != LATEST:
            start = max(start, later.offset)
        ends = got.high_watermark[(got.lane == got.lane[row]) & (got.fetch <= fetch)]
        end = max(int(ends.max()), written_ends(scene.facts).get(lane, (0, -1))[1])
        if 0 <= end < asked:
            by = next((c for c in scene.facts.committed if c.lane == lane and c.offset == asked and c.number < number), None)
            who = f", as {scene.name(by.client)} had committed (request {by.number})" if by else ""
            goes = "" if later is None else f" It goes to the {'end' if later.timestamp == LATEST else 'start'} of the log, offset {later.offset}."
            yield found(
                "offset-out-of-range", "error", 91,
                f"{scene.name(client)} asks for offset {asked} of {lane}{who}, and the log ends at {end}.{goes}",
                "Commit the offset after the last record that was processed; was the topic deleted and made anew, reset the group's offsets.",
                [number, *([by.number] if by else []), *([later.number] if later else [])], str(lane),
            )  # fmt: skip
            continue
        lost = f"; {start - asked} records were deleted before they were read" if start > asked else ""
        then = "" if later is None else f", and goes to the {'end' if later.timestamp == LATEST else 'start'} of the log, offset {later.offset}"
        yield found(
            "offset-out-of-range", "error", 91,
            f"{scene.name(client)} asks for offset {asked} of {lane}, which the log does not have{then}{lost}.",
            "Read faster than retention deletes, or raise retention.ms; set auto.offset.reset=none to notice it.",
            [number, *([later.number] if later else [])], str(lane),
        )  # fmt: skip


def _latest(scene: Scene) -> Iterator[Finding]:
    """Groups without an offset that begin at the end of a log that has records."""
    missing = {(p.client, p.lane): p for p in scene.facts.positions if p.group and p.offset < 0 and not p.error}
    latest = [position for position in scene.facts.resets() if position.timestamp == LATEST] if missing else []
    if not latest:
        return
    got, lanes = scene.facts.fetches.got, scene.facts.fetches.names.lanes
    rows = np.flatnonzero(got.log_start >= 0)
    starts = {lanes[lane]: int(got.log_start[rows[at[-1]]]) for lane, at in split(got.lane[rows])}
    skipped = []
    for position in latest:
        at = missing.get((position.client, position.lane))
        if at and position.timestamp == LATEST and position.offset > starts.get(position.lane, position.offset):
            skipped.append((position, position.offset - starts[position.lane], at))
    if skipped:
        position, _, at = skipped[0]
        total = sum(count for _, count, _ in skipped)
        yield found(
            "started-at-end", "warning", 69,
            f"{scene.name(position.client)} found no committed offset in group {at.group} and began at the end of "
            f"{several(str(p.lane) for p, _, _ in skipped)} (auto.offset.reset=latest): it skips the {total} records that exist.",
            "Set auto.offset.reset=earliest, if a new group has to read what "
            "exists.", [number for p, _, a in skipped for number in (a.number, p.number)], at.group or "",
        )  # fmt: skip
