"""List, create, describe, alter and delete topics of a directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog._place import CLUSTER, DIRECTORY
from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError, changed_properties, configured, confirm, opened, properties, topic
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, DELETE_CONFIG, JSON, PLACE, TOPIC, YES, names_of_topics
from fletchlog.cli.serve import MOST_NODES
from fletchlog.cli.tables import done, show
from fletchlog.cli.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    import fletchlog as fl
    from fletchlog._place import Place


def list_topics(directory: Place = PLACE, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
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
            "bytes": sum(max(p.size_bytes, 0) for p in found.partitions) if directory.kind != CLUSTER else None,
        }
        for found in described
    ]
    show(rows, as_json=as_json, empty=f"{directory} holds no topic")


def create(
    directory: Place = PLACE,
    name: str = argument("TOPIC", "Name of the topic."),
    partitions: int = option("--partitions -p", "Number of partitions.", 1),
    config: list[str] | None = CONFIG,
    nodes: int | None = option("--nodes", "Number of nodes when the directory is new."),
    if_not_exists: bool = option("--if-not-exists", "Leave a topic that exists already as it is.", False),
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Create a topic; a new directory is created with it.

    fletchlog topics create data/ orders --partitions 6

    fletchlog topics create data/ clicks -c message.timestamp.type=LogAppendTime
    """
    if nodes is not None and not 1 <= nodes <= MOST_NODES:
        raise CommandError(f"--nodes is from 1 to {MOST_NODES}, not {nodes}")
    with opened(directory, create=True, nodes=nodes, client=configured(command_config)) as broker:
        exists = if_not_exists and name in broker.topics()
        if exists:
            partitions = len(broker.describe_topic(name).partitions)
        else:
            broker.create_topic(name, partitions=partitions, config=properties(config))
    done(
        f"{'found' if exists else 'created'} {name} with {counted(partitions, 'partition')} in {directory}", as_json=as_json, topic=name, partitions=partitions
    )


def describe(
    directory: Place = PLACE,
    names: list[str] | None = argument("TOPIC", "Topics; default: all.", None, complete=names_of_topics),
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
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
        partitions = [_row(p, paths.get(f"{found.name}-{p.partition}"), sized=directory.kind != CLUSTER) for p in found.partitions]
        show(partitions, as_json=False, empty="", title=f"{found.name}  (id {found.topic_id}; {settings or 'defaults'})")


def _known(partition: fl.admin.PartitionDescription) -> dict[str, Any]:
    """A partition; -1 stands for what is not known of it."""
    return {name: None if isinstance(value, int) and value < 0 else value for name, value in partition._asdict().items()}


def _row(partition: fl.admin.PartitionDescription, directory: str | None, *, sized: bool) -> dict[str, Any]:
    known = _known(partition)
    row: dict[str, Any] = {"partition": known["partition"], "leader": known["leader"], "start": known["log_start_offset"]}
    row |= {"end": known["high_watermark"], "last stable": known["last_stable_offset"]}
    return row | {"bytes": known["size_bytes"], "segments": known["segments"], "directory": directory} if sized else row


def _directories(directory: Place) -> dict[str, str]:
    """Where the partitions of a directory are."""
    from fletchlog._core import partition_directories

    return {} if directory.kind != DIRECTORY else {path.name: str(path) for path, _ in partition_directories(directory)}


def alter(
    directory: Place = PLACE,
    name: str = TOPIC,
    partitions: int | None = option("--partitions -p", "Number of partitions in all; more than now."),
    config: list[str] | None = CONFIG,
    delete_config: list[str] | None = DELETE_CONFIG,
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
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
    done(f"altered {name} in {directory}", as_json=as_json, topic=name, partitions=len(now.partitions), config=now.config)


def add_partitions(
    directory: Place = PLACE,
    name: str = TOPIC,
    number: int = argument("NUMBER", "How many more."),
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Add partitions to a topic. Keys go to other partitions from then on.

    fletchlog topics add-partitions data/ orders 2
    """
    if number < 1:
        raise CommandError(f"NUMBER is at least 1, not {number}")
    with opened(directory, client=configured(command_config)) as broker:
        count = len(topic(broker, name).partitions) + number
        broker.create_partitions(name, count)
    done(f"{name} has {counted(count, 'partition')} now", as_json=as_json, topic=name, partitions=count)


def delete(directory: Place = PLACE, name: str = TOPIC, yes: bool = YES, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """Delete a topic and its records.

    fletchlog topics delete data/ orders --yes
    """
    confirm(f"delete {name} with all its records from {directory}", yes=yes)
    with opened(directory, client=configured(command_config)) as broker:
        topic(broker, name)
        broker.delete_topic(name)
    done(f"deleted {name}", as_json=as_json, topic=name)


COMMANDS = {"list": list_topics, "create": create, "describe": describe, "alter": alter, "add-partitions": add_partitions, "delete": delete}
