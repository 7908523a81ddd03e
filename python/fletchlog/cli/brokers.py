"""`fletchlog brokers`: describe the properties of nodes, and alter them."""

from __future__ import annotations

from typing import Annotated

import typer

from fletchlog._place import Place
from fletchlog.cli.common import Given, changed_properties, command, configured, opened, shown, takes_clusters
from fletchlog.cli.options import CommandConfig, Config  # noqa: TC001 - typer reads it
from fletchlog.cli.tables import done, show

brokers = typer.Typer(no_args_is_help=True, help="Describe and alter the properties of a broker's nodes.")

Directory = Annotated[Place, typer.Argument(parser=Given, help="The broker's directory, or kafka://HOST:PORT.", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@brokers.command()
@command
@takes_clusters
def describe(
    directory: Directory,
    node: Annotated[int | None, typer.Option("--node", help="Number of the node; default: the first one.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Properties that nobody has set as well.")] = False,
    as_json: Json = False,
    command_config: CommandConfig = None,
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


@brokers.command()
@command
@takes_clusters
def alter(
    directory: Directory,
    node: Annotated[int | None, typer.Option("--node", help="Only this node; default: all nodes.")] = None,
    config: Config = None,
    delete_config: Annotated[list[str] | None, typer.Option("--delete-config", "-d", metavar="NAME", help="A property to reset; may be repeated.")] = None,
    as_json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Change properties of all nodes, or of one. The change is kept in the directory and wins over what a broker is opened with.

    fletchlog brokers alter data/ -c log.retention.ms=3600000

    fletchlog brokers alter kafka://localhost:9092 --node 2 -d log.retention.ms
    """
    changes = changed_properties(config, delete_config, "nothing to alter: give --config or --delete-config")
    with opened(directory, client=configured(command_config)) as broker:
        broker.alter_broker_config(changes, node=node)
    whose = "all nodes" if node is None else f"node {node}"
    done(f"altered {whose} of {shown(directory)}", as_json=as_json, node=node, changes=changes)
