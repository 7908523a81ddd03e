"""`fletchlog topics`: list, create, describe, alter, add partitions, delete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fletchlog._place import Place
from fletchlog.cli.common import (
    CommandError,
    Given,
    changed_properties,
    cluster_of,
    command,
    configured,
    opened,
    properties,
    shown,
    store_of,
    takes_clusters,
    topic,
)
from fletchlog.cli.options import CommandConfig, Config, names_of_topics
from fletchlog.cli.tables import done, show
from fletchlog.cli.text import counted, visible

if TYPE_CHECKING:
    import fletchlog as fl

topics = typer.Typer(no_args_is_help=True, help="List, create, describe, alter and delete topics of a directory.")

Directory = Annotated[Place, typer.Argument(parser=Given, help="The broker's directory, or kafka://HOST:PORT.", metavar="DIR")]
Name = Annotated[str, typer.Argument(help="Name of the topic.", metavar="TOPIC", autocompletion=names_of_topics)]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@topics.command("list")
@command
@takes_clusters
def list_topics(directory: Directory, as_json: Json = False, command_config: CommandConfig = None) -> None:
    """List the topics of a directory, also while another process writes to it.

    fletchlog topics list data/
    """
    with opened(directory, read_only=True, client=configured(command_config)) as broker:
        described = [broker.describe_topic(name) for name in broker.topics()]
    rows = [
        {
            "topic": found.name,
            "partitions": len(found.partitions),
            "records": sum(p.high_watermark - p.log_start_offset for p in found.partitions),
            "bytes": sum(max(p.size_bytes, 0) for p in found.partitions) if cluster_of(directory) is None else None,
        }
        for found in described
    ]
    show(rows, as_json=as_json, empty=f"{shown(directory)} holds no topic")


@topics.command()
@command
@takes_clusters
def create(
    directory: Directory,
    name: Annotated[str, typer.Argument(help="Name of the topic.", metavar="TOPIC")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="Number of partitions.")] = 1,
    config: Config = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes when the directory is new.")] = None,
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Create a topic; a new directory is created with it.

    fletchlog topics create data/ orders --partitions 6

    fletchlog topics create data/ clicks -c message.timestamp.type=LogAppendTime
    """
    with opened(directory, create=True, nodes=nodes, client=configured(command_config)) as broker:
        broker.create_topic(name, partitions=partitions, config=properties(config))
    done(f"created {name} with {counted(partitions, 'partition')} in {shown(directory)}", as_json=as_json, topic=name, partitions=partitions)


@topics.command()
@command
@takes_clusters
def describe(
    directory: Directory,
    names: Annotated[list[str] | None, typer.Argument(help="Topics; default: all.", metavar="TOPIC", autocompletion=names_of_topics)] = None,
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show partitions, leaders, offsets, sizes and configuration of topics.

    What cannot be read of a partition is left empty.

    fletchlog topics describe data/ orders
    """
    with opened(directory, read_only=True, client=configured(command_config)) as broker:
        described = [topic(broker, name) for name in names or broker.topics()]
    paths = _directories(directory)
    if as_json:
        rows = [
            found._asdict() | {"partitions": [_known(p) | {"directory": paths.get(f"{found.name}-{p.partition}")} for p in found.partitions]}
            for found in described
        ]
        print(json.dumps(rows, indent=2))
        return
    for found in described:
        settings = "properties may not be read" if found.config is None else ", ".join(f"{key}={value}" for key, value in sorted(found.config.items()))
        partitions = [_row(p, paths.get(f"{found.name}-{p.partition}"), sized=cluster_of(directory) is None) for p in found.partitions]
        show(partitions, as_json=False, empty="", title=f"{found.name}  (id {found.topic_id}; {settings or 'defaults'})")


def _known(partition: fl.admin.PartitionDescription) -> dict[str, Any]:
    """A partition; -1 stands for what is not known of it."""
    return {name: None if value < 0 else value for name, value in partition._asdict().items()}


def _row(partition: fl.admin.PartitionDescription, directory: str | None, *, sized: bool) -> dict[str, Any]:
    known = _known(partition)
    row: dict[str, Any] = {"partition": known["partition"], "leader": known["leader"], "start": known["log_start_offset"]}
    row |= {"end": known["high_watermark"], "last stable": known["last_stable_offset"]}
    return row | {"bytes": known["size_bytes"], "segments": known["segments"], "directory": directory} if sized else row


def _directories(directory: Place) -> dict[str, str]:
    """Where the partitions of a directory are."""
    from fletchlog._core import partition_directories

    return {} if cluster_of(directory) or store_of(directory) else {path.name: str(path) for path, _ in partition_directories(directory)}


@topics.command()
@command
@takes_clusters
def alter(
    directory: Directory,
    name: Name,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="Number of partitions in all; more than now.")] = None,
    config: Config = None,
    delete_config: Annotated[list[str] | None, typer.Option("--delete-config", "-d", metavar="NAME", help="A property to reset; may be repeated.")] = None,
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Give a topic more partitions or other properties.

    fletchlog topics alter data/ orders --partitions 12

    fletchlog topics alter data/ clicks -c retention.ms=3600000 -d segment.bytes
    """
    nothing = "nothing to alter: give --partitions, --config or --delete-config"
    changes = changed_properties(config, delete_config, nothing if partitions is None else None)
    with opened(directory, client=configured(command_config)) as broker:
        topic(broker, name)
        if changes:
            broker.alter_topic_config(name, changes, validate_only=True)
        if partitions is not None:
            broker.create_partitions(name, partitions)
        if changes:
            broker.alter_topic_config(name, changes)
        now = broker.describe_topic(name)
    done(f"altered {name} in {shown(directory)}", as_json=as_json, topic=name, partitions=len(now.partitions), config=now.config)


@topics.command("add-partitions")
@command
@takes_clusters
def add_partitions(
    directory: Directory,
    name: Name,
    number: Annotated[int, typer.Argument(help="How many more.", metavar="NUMBER")],
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Give a topic so many more partitions. Keys go to other partitions from then on.

    fletchlog topics add-partitions data/ orders 2
    """
    if number < 1:
        raise CommandError(f"NUMBER is at least 1, not {number}")
    with opened(directory, client=configured(command_config)) as broker:
        count = len(topic(broker, name).partitions) + number
        broker.create_partitions(name, count)
    done(f"{name} has {counted(count, 'partition')} now", as_json=as_json, topic=name, partitions=count)


@topics.command()
@command
@takes_clusters
def delete(
    directory: Directory,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Delete a topic and its records.

    fletchlog topics delete data/ orders --yes
    """
    if not yes and not typer.confirm(visible(f"delete {name} with all its records from {shown(directory)}?"), err=True):
        raise CommandError("nothing was deleted")
    with opened(directory, client=configured(command_config)) as broker:
        topic(broker, name)
        broker.delete_topic(name)
    done(f"deleted {name}", as_json=as_json, topic=name)
