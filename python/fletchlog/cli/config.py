"""`fletchlog config`: every property with default and doc."""

from __future__ import annotations

import json

from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError
from fletchlog.cli.tables import draw
from fletchlog.cli.terminal import styled

SCOPES = ("broker", "topic", "producer", "consumer", "legacy-consumer")


def config(
    words: list[str] | None = argument("WORDS", "Show only properties whose name or text contains all of these.", None),
    scope: str | None = option("--scope", f"Only one of: {', '.join(SCOPES)}."),
    as_json: bool = option("--json", "One JSON array instead of a table.", False),
) -> None:
    """Print every configuration property with its default and what it does.

    Names are Kafka's own; those that Kafka does not have begin with fletchlog.

      fletchlog config                          # all of them

      fletchlog config --scope producer         # what a producer takes

      fletchlog config max poll                 # that mention "max" and "poll"
    """
    import fletchlog as fl

    if scope is not None and scope not in SCOPES:
        raise CommandError(f"--scope is one of {', '.join(SCOPES)}, not {scope}")
    rows = [key for key in fl.admin.config_table() if scope in {None, key.scope}]
    for word in words or ():
        rows = [key for key in rows if word.lower() in f"{key.name} {key.doc}".lower()]
    if as_json:
        print(json.dumps([key._asdict() for key in rows], indent=2))
        return
    if not rows:
        raise CommandError(f"no property matches {' '.join(words or ())}; fletchlog config prints all of them")
    from rich.table import Table

    for name in [s for s in SCOPES if any(key.scope == s for key in rows)]:
        table = Table("property", "type", "default", "what it does", title=name, title_justify="left", show_lines=False)
        table.columns[0].overflow = "fold"
        for key in rows:
            if key.scope == name:
                table.add_row(styled(key.name, "bold"), key.type, "unset" if key.default is None else key.default, key.doc)
        draw(table)
