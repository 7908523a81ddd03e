"""`fletchlog groups`: list, describe, reset, delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fletchlog.cli.common import CommandError, cluster_of, command, opened, shown, takes_clusters
from fletchlog.cli.terminal import out
from fletchlog.cli.text import say, visible

if TYPE_CHECKING:
    import fletchlog as fl

groups = typer.Typer(no_args_is_help=True, help="List, describe, reset and delete the consumer groups of a directory.")

Directory = Annotated[Path, typer.Argument(help="The broker's directory; but for delete also kafka://HOST:PORT.", metavar="DIR")]
Group = Annotated[str, typer.Argument(help="group.id.", metavar="GROUP")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@groups.command("list")
@command
@takes_clusters
def list_groups(directory: Directory, as_json: Json = False) -> None:
    """List the groups that have committed offsets, with how many records they have not read.

    fletchlog groups list data/
    """
    with opened(directory, read_only=True) as broker:
        rows = [
            {"group": group.group_id, "partitions": len(lags), "lag": sum(max(row["lag"], 0) for row in lags)}
            for group in broker.groups()
            for lags in [_lags(broker, directory, group.group_id)]
        ]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _show(rows)
    else:
        say(f"{shown(directory)} holds no group")


@groups.command()
@command
@takes_clusters
def describe(directory: Directory, group: Group, as_json: Json = False) -> None:
    """Show where a group goes on in each partition, and its lag.

    fletchlog groups describe data/ g
    """
    with opened(directory, read_only=True) as broker:
        broker.describe_group(group)
        rows = _lags(broker, directory, group)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _show(rows)
    else:
        say(f"{group} has committed no offsets")


@groups.command()
@command
@takes_clusters
def reset(
    directory: Directory,
    group: Group,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets are set.")],
    to: Annotated[str, typer.Option("--to", metavar="earliest|latest|OFFSET", help="Where the group goes on.")],
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="A partition; may be repeated. Default: all.")] = None,
) -> None:
    """Set where a group goes on. Nobody may be a member of it.

    fletchlog groups reset data/ g --topic orders --to earliest
    """
    import fletchlog as fl

    with opened(directory) as broker:
        described = {p.partition: p for p in broker.describe_topic(topic).partitions}
        for number in partition or ():
            if number not in described:
                raise CommandError(f"{topic} has no partition {number}; it has {len(described)}")
        offsets: dict[tuple[str, int], fl.OffsetAndMetadata | int] = {(topic, number): _target(described[number], to) for number in partition or described}
        if isinstance(broker, fl.Broker):
            broker.alter_offsets(group, offsets)
        else:
            with _consumer(broker, directory, group) as consumer:
                consumer.commit(offsets)
    for (_, number), offset in offsets.items():
        say(f"{group} goes on in {topic}-{number} at {offset}")


@groups.command()
@command
def delete(
    directory: Directory,
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a group and its offsets.

    fletchlog groups delete data/ g --yes
    """
    import fletchlog as fl

    if not yes and not typer.confirm(visible(f"delete {group} with all its offsets from {directory}?"), err=True):
        raise CommandError("nothing was deleted")
    with fl.Broker(directory) as broker:
        broker.delete_group(group)
    say(f"deleted {group}")


def _target(partition: fl.PartitionDescription, to: str) -> int:
    """The offset that is meant."""
    if to in {"earliest", "latest"}:
        return partition.log_start_offset if to == "earliest" else partition.high_watermark
    if not to.isascii() or not to.isdigit():
        raise CommandError(f"--to wants earliest, latest or an offset, got {to}")
    return int(to)


def _lags(broker: fl.Broker | fl.Cluster, directory: Path, group: str) -> list[dict[str, Any]]:
    """A row for each partition with a committed offset."""
    ends = {(topic, p.partition): p.high_watermark for topic in broker.topics() for p in broker.describe_topic(topic).partitions}
    with _consumer(broker, directory, group) as consumer:
        committed = consumer.committed(list(ends))
    return [
        {"topic": tp.topic, "partition": tp.partition, "committed": offset.offset, "end": ends[tp], "lag": ends[tp] - offset.offset}
        for tp, offset in committed.items()
        if offset is not None
    ]


def _consumer(broker: fl.Broker | fl.Cluster, directory: Path, group: str) -> fl.Consumer:
    """A consumer with this group.id that is no member of the group."""
    import fletchlog as fl

    return fl.Consumer(broker if isinstance(broker, fl.Broker) else cluster_of(directory), {"group.id": group, "enable.auto.commit": "false"})


def _show(rows: list[dict[str, Any]]) -> None:
    """A table of these rows."""
    from rich.table import Table

    table = Table()
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else visible(value) for value in row.values()))
    out().print(table)
