"""Options for typer."""

from __future__ import annotations

import functools
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fletchlog.cli.common import cluster_of
from fletchlog.cli.plain import CONFIG, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import fletchlog as fl


def _info(option: Option) -> Any:
    if option.flags:
        return typer.Option(*option.flags, help=option.text, metavar=option.metavar)
    return typer.Argument(help=option.text, metavar=option.metavar)


Config = Annotated[list[str] | None, _info(CONFIG)]
# the name that Kafka's own tools have for it
CommandConfig = Annotated[Path | None, typer.Option("--command-config", metavar="FILE", help="Properties of clients of a cluster, as Kafka's tools read them.")]


def names_of_topics(context: typer.Context) -> list[str]:
    """Completes the name of a topic of the directory that is given before it."""
    try:
        with _opened(context) as broker:
            return broker.topics()
    except Exception:  # noqa: BLE001 - a half-typed line is no place for an error
        return []


def lists_of_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Completes the last name of a list with commas, by the directory that is before it."""
    # the shell hands over what is typed; click has not read what is before an option without its value
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    context.params["directory"] = next((word for word in words[2:] if cluster_of(word) or Path(word).is_dir()), None)
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names_of_topics(context)]


def names_of_groups(context: typer.Context) -> list[str]:
    """Completes the name of a group of the directory that is given before it."""
    try:
        with _opened(context) as broker:
            return [listed.group_id for listed in broker.groups()]
    except Exception:  # noqa: BLE001 - a half-typed line is no place for an error
        return []


def _opened(context: typer.Context) -> fl.Broker | fl.Cluster:
    from fletchlog.cli.common import configured, opened

    return opened(context.params["directory"], read_only=True, client=configured(context.params.get("command_config")))


def typer_command(function: Callable[..., None], options: Sequence[Option]) -> Callable[..., None]:
    """A command that takes these options, for typer."""

    @functools.wraps(function)
    def command(**given: object) -> None:
        function(**given)

    command.__signature__ = inspect.Signature([_parameter(option) for option in options])  # type: ignore[attr-defined]
    return command


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any = list[str] if option.kind is list else option.kind
    annotation: Any = Annotated[kind if option.default is not None else kind | None, _info(option)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
