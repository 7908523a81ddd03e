"""Describe and alter the properties of a broker's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.cli.arguments import option
from fletchlog.cli.common import changed_properties, configured, opened
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, DELETE_CONFIG, JSON, PLACE
from fletchlog.cli.tables import done, show

if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._place import Place


def describe(
    directory: Place = PLACE,
    node: int | None = option("--node", "Number of the node; default: the first one."),
    everything: bool = option("--all", "Properties that nobody has set as well.", False),
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Show the properties of a node, and where each value comes from.

    fletchlog brokers describe data/

    fletchlog brokers describe kafka://localhost:9092 --node 2 --all
    """
    with opened(directory, read_only=True, client=configured(command_config)) as broker:
        entries = broker.describe_config(node=node)
    rows = [
        {"property": entry.name, "value": entry.value, "source": entry.source, "altered while it runs": "no" if entry.read_only else "yes"}
        for entry in entries
        if everything or entry.source != "DEFAULT_CONFIG"
    ]
    show(rows, as_json=as_json, empty="every property has its default; --all shows them")


def alter(
    directory: Place = PLACE,
    node: int | None = option("--node", "Only this node; default: all nodes."),
    config: list[str] | None = CONFIG,
    delete_config: list[str] | None = DELETE_CONFIG,
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Change properties of all nodes, or of one. The change is kept in the directory and wins over what a broker is opened with.

    fletchlog brokers alter data/ -c log.retention.ms=3600000

    fletchlog brokers alter kafka://localhost:9092 --node 2 -d log.retention.ms
    """
    changes = changed_properties(config, delete_config, "nothing to alter: give --config or --delete-config")
    with opened(directory, client=configured(command_config)) as broker:
        broker.alter_broker_config(changes, node=node)
    whose = "all nodes" if node is None else f"node {node}"
    done(f"altered {whose} of {directory}", as_json=as_json, node=node, changes=changes)


COMMANDS = {"describe": describe, "alter": alter}
