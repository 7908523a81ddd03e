"""All sub-commands put together."""

from __future__ import annotations

import inspect
import re
from typing import Annotated

import typer

from fletchlog.cli.assign import assign
from fletchlog.cli.audit import audit
from fletchlog.cli.brokers import brokers
from fletchlog.cli.config import config
from fletchlog.cli.consume import consume
from fletchlog.cli.copy import copy
from fletchlog.cli.dump import dump
from fletchlog.cli.explain import explain
from fletchlog.cli.export import export
from fletchlog.cli.groups import groups
from fletchlog.cli.options import typer_command
from fletchlog.cli.produce import produce
from fletchlog.cli.serve import OPTIONS, serve
from fletchlog.cli.topics import topics
from fletchlog.cli.transactions import transactions
from fletchlog.cli.upkeep import clean, delete_records, retention, take_over
from fletchlog.cli.users import users
from fletchlog.cli.verify import verify

app = typer.Typer(
    name="fletchlog",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Kafka's log and Kafka's exact ordering rules in a directory.

A first look:

  fletchlog topics create data/ orders --partitions 3

  seq 1000 | fletchlog produce data/ orders

  fletchlog consume data/ orders --max 20

  fletchlog explain data/ --topics orders --png order.png
""",
)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(brokers, name="brokers")
app.add_typer(transactions, name="transactions")
app.add_typer(users, name="users")
for command in (
    typer_command(serve, OPTIONS),
    produce,
    consume,
    copy,
    export,
    explain,
    delete_records,
    clean,
    retention,
    take_over,
    assign,
    audit,
    dump,
    verify,
    config,
):
    app.command()(command)
for of in (app, topics, groups, brokers, transactions, users):
    for registered in of.registered_commands:
        # the terminal's width breaks the lines of a paragraph, not the source's
        registered.help = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.getdoc(registered.callback) or "")


@app.callback(invoke_without_command=True)
def version(context: typer.Context, show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Options of the command itself."""
    if show:
        import fletchlog

        typer.echo(f"fletchlog {fletchlog.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
