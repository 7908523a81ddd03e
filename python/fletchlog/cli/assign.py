"""`fletchlog assign`: who owns what under each assignor."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fletchlog.cli.arguments import option
from fletchlog.cli.common import CommandError
from fletchlog.cli.delivery import write_file
from fletchlog.cli.options import JSON
from fletchlog.cli.tables import draw
from fletchlog.cli.terminal import out
from fletchlog.cli.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fletchlog._place import Place
    from fletchlog.explain.owners import Ownership


MODERN = "range,roundrobin,sticky,cooperative-sticky"


def assign(
    topics: str = option("--topics -t", "Topics with their partitions, orders=6,payments=3; with --dir names are enough.", ..., "TOPIC=N,.."),
    members: str = option("--members -m", "Members, separated by commas; a number means that many members: 3 is c1,c2,c3.", ...),
    subscriptions: list[str] | None = option("--subscribe", "c1=orders,payments: what a member subscribes to; default: all topics.", metavar="MEMBER=TOPICS"),
    join: list[str] | None = option("--join", "A member that joins afterwards; may be repeated.", metavar="MEMBER"),
    leave: list[str] | None = option("--leave", "A member that leaves afterwards; may be repeated.", metavar="MEMBER"),
    assignors: str = option("--assignors -a", "Which: those of the Java client, legacy-range, legacy-roundrobin, or all.", MODERN),
    streams: int = option("--streams", "Threads per topic of each legacy consumer.", 1),
    directory: Place | None = option("--dir", "A broker's directory that knows the partitions.", metavar="DIR"),
    svg: Path | None = option("--svg", "Draw it as SVG.", writes=True),
    png: Path | None = option("--png", "Draw it as PNG.", writes=True),
    as_json: bool = JSON,
) -> None:
    """Show who owns which partition under each assignor, who idles and why, before and after a member joins or leaves.

    fletchlog assign -t orders=6 -m 3 --join c4

    fletchlog assign -t a=6,b=3 -m c1,c2,c3 --subscribe c1=a --leave c2

    fletchlog assign -t my-topic=6 -m 2 --assignors legacy-range --streams 6
    """
    from fletchlog.explain import owners, owners_picture
    from fletchlog.explain.shapes import to_png, to_svg

    counts = _topics(topics, directory)
    group = _members(members, subscriptions or [], counts)
    names = owners.ASSIGNORS if assignors == "all" else [name.strip() for name in assignors.split(",") if name.strip()]
    if streams < 1:
        raise CommandError(f"--streams is {streams}; give 1 or more")
    first = [owners.ownership(name, counts, group, streams=streams) for name in names]
    stages: list[tuple[str, Sequence[Ownership]]] = [("", first)]
    if join or leave:
        later = _changed(group, join or [], leave or [], _subscriptions(subscriptions or [], counts), counts)
        then = " and ".join([*(f"{member} joined" for member in join or []), *(f"{member} left" for member in leave or [])])
        after = [owners.ownership(name, counts, later, streams=streams, before=before) for name, before in zip(names, first, strict=True)]
        stages = [("before", first), (f"after {then}", after)]
    if as_json:
        print(json.dumps([{"stage": title, "assignments": [asdict(item) for item in found]} for title, found in stages], indent=2))
    elif "-" not in (str(svg), str(png)):
        _print(stages)
    drawing = owners_picture.draw(stages)
    if svg is not None:
        write_file(svg, to_svg(drawing))
    if png is not None:
        try:
            write_file(png, to_png(drawing))
        except ModuleNotFoundError as error:
            raise CommandError(f"--png needs {error.name}: pip install 'fletchlog[plot]'; --svg needs nothing") from None


def _topics(text: str, directory: Place | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        name, equals, count = item.partition("=")
        if equals and count.isdecimal():
            found[name] = int(count)
        elif not equals and directory is not None:
            found[name] = _partitions(directory, name)
        else:
            raise CommandError(f"--topics wants NAME=PARTITIONS, got {item}" + ("" if directory else "; or give --dir, which knows the partitions"))
    if not found:
        raise CommandError("--topics names no topic")
    return found


def _partitions(directory: Place, topic: str) -> int:
    import fletchlog as fl

    with fl.Broker(directory, read_only=True) as broker:
        return len(broker.describe_topic(topic).partitions)


def _members(text: str, subscriptions: Sequence[str], topics: Mapping[str, int]) -> dict[str, list[str]]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if len(names) == 1 and names[0].isdecimal():
        names = [f"c{number}" for number in range(1, int(names[0]) + 1)]
    if not names:
        raise CommandError("--members names nobody")
    given = _subscriptions(subscriptions, topics)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise CommandError(f"--subscribe names {', '.join(unknown)}, which is no member")
    return {name: given.get(name, list(topics)) for name in names}


def _subscriptions(pairs: Sequence[str], topics: Mapping[str, int]) -> dict[str, list[str]]:
    found = {}
    for pair in pairs:
        member, equals, names = pair.partition("=")
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        if not equals or not wanted:
            raise CommandError(f"--subscribe wants MEMBER=TOPIC,TOPIC, got {pair}")
        missing = [name for name in wanted if name not in topics]
        if missing:
            raise CommandError(f"--subscribe {pair}: --topics has no {', '.join(missing)}")
        found[member.strip()] = wanted
    return found


def _changed(
    group: Mapping[str, list[str]], join: Sequence[str], leave: Sequence[str], given: Mapping[str, list[str]], topics: Mapping[str, int]
) -> dict[str, list[str]]:
    for member in leave:
        if member not in group:
            raise CommandError(f"--leave {member}: there is no such member; there are {', '.join(group)}")
    for member in join:
        if member in group:
            raise CommandError(f"--join {member}: this is a member already")
    later = {member: names for member, names in group.items() if member not in leave}
    later |= {member: given.get(member, list(topics)) for member in join}
    if not later:
        raise CommandError("nobody is left in the group")
    return later


def _print(stages: Sequence[tuple[str, Sequence[Ownership]]]) -> None:
    from rich.table import Table

    console = out()
    for number, one in enumerate(stages[0][1]):
        members = sorted({member for _, found in stages for member in found[number].owners})
        table = Table("member", title=one.assignor, title_justify="left", min_width=len(one.assignor), box=None, pad_edge=False)
        for title, _ in stages:
            table.add_column(title or "owns")
        for member in members:
            table.add_row(member, *(_owned(found[number], member) for _, found in stages))
        draw(table)
        for _, found in stages:
            item = found[number]
            for why in dict.fromkeys(item.idle.values()):
                members = [member for member, reason in item.idle.items() if reason == why]
                console.print(f"  {', '.join(members)} {'idles' if len(members) == 1 else 'idle'}: {why}")
            if found is not stages[0][1]:
                rounds = f", in {item.rounds} rebalances" if item.rounds > 1 else ""
                verb = "has" if len(item.moved) == 1 else "have"
                console.print(f"  {len(item.moved)} of {counted(sum(item.topics.values()), 'partition')} {verb} another owner{rounds}")
        console.print()


def _owned(found: Ownership, member: str) -> Any:
    if member not in found.owners:
        return "-"
    owned = {topic: partitions for topic, partitions in found.owners[member].items() if partitions}
    return "  ".join(f"{topic} {','.join(map(str, partitions))}" for topic, partitions in owned.items()) or "idle"
