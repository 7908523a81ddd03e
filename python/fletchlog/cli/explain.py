"""`fletchlog explain`: why this poll order."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from fletchlog.cli.common import CommandError, Config, command, err, properties


@command
def explain(
    directory: Annotated[Path, typer.Argument(help="The broker's directory.", metavar="DIR")],
    topics: Annotated[str, typer.Option("--topics", "-t", help="Topics, separated by commas, as a program would give them.")],
    polls: Annotated[int, typer.Option(help="How many polls to explain.")] = 20,
    png: Annotated[Path | None, typer.Option("--png", help="Draw the polls into this file (PNG or SVG).")] = None,
    subscribe: Annotated[bool, typer.Option(help="Use subscribe() in a group of one instead of assign().")] = False,
    against: Annotated[bool, typer.Option("--against-kip-387", help="Draw the order of KIP-387 below it, for comparison.")] = False,
    config: Config = None,
) -> None:
    """Tell which partition each poll() reads and why, for the topics in a directory.

    The directory is opened for reading only and nothing is committed.

      fletchlog explain data/ --topics orders,payments

      fletchlog explain data/ -t orders -c max.poll.records=100 -c fletchlog.consumer.version=3.9 --polls 50 --png order.png

      fletchlog explain data/ -t orders --subscribe --against-kip-387 --png both.png
    """
    import fletchlog as fl
    from fletchlog import explain as story

    names = [name.strip() for name in topics.split(",") if name.strip()]
    if not names:
        raise CommandError("--topics names no topic")
    given = properties(config)
    if against and png is None:
        raise CommandError("--against-kip-387 is a picture: add --png FILE")
    with fl.Broker(directory, read_only=True) as broker:
        told = story.explain(broker, names, given, polls=polls, subscribe=subscribe)
        print(told.text())
        if png is None:
            return
        drawn = [(f"Java client {told.release}" if told.order != "kip-387" else "KIP-387", told)]
        if against:
            fair = story.explain(broker, names, given | {"fletchlog.fetch.order": "kip-387"}, polls=polls, subscribe=subscribe)
            drawn.append(("KIP-387: every poll() turns to the next partition", fair))
        lanes = sorted((name, p.partition) for name in names for p in broker.describe_topic(name).partitions)
    if not told.polls:
        raise CommandError(f"{', '.join(names)}: there was no record to poll, {png} was not drawn")
    try:
        from fletchlog.plot import PollOrder, poll_order

        poll_order(
            png,
            [PollOrder(title, item.polls) for title, item in drawn],
            title=f"Which partition does each poll() return?  ({', '.join(names)})",
            lanes=lanes,
        )
    except ModuleNotFoundError as error:
        raise CommandError(f"--png needs {error.name}: pip install 'fletchlog[plot]'") from None
    err().print(f"wrote {png}")
