"""What the sub-commands share: errors in one sentence, consoles, progress, `--config`."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

P = ParamSpec("P")
R = TypeVar("R")

INTERRUPTED = 130

Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A property by Kafka's name; may be repeated.")
]


class CommandError(Exception):
    """What the user asked for cannot be done; the text is all that is shown."""


def out() -> Console:
    """Where results go. Made per call: tests and pipes replace the stream. A file or pipe gets lines of 120 characters."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 120)


def err() -> Console:
    """Where progress and complaints go."""
    return Console(file=sys.stderr, highlight=False)


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turns expected errors into one sentence and exit code 1; everything else is a defect and keeps its traceback."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        from fletchlog.errors import KafkaError

        try:
            return function(*args, **kwargs)
        except (CommandError, KafkaError) as error:
            fail(str(error))
        except BrokenPipeError:
            # the reader (`| head`) has seen enough; the interpreter must not complain at its own flush either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")
        except KeyboardInterrupt:
            err().print("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def fail(message: str) -> NoReturn:
    """Shows `message` and ends the command with code 1."""
    print(f"fletchlog: {message}", file=sys.stderr)
    raise typer.Exit(1) from None


def properties(pairs: Iterable[str] | None) -> dict[str, str]:
    """`name=value` texts as a mapping.

    Raises:
        CommandError: A text without `=`.
    """
    result = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise CommandError(f"--config wants NAME=VALUE, got {pair}")
        result[name.strip()] = value.strip()
    return result


def progress(*, unit: str = "records", console: Console | None = None) -> Progress:
    """A progress bar on standard error; it disappears when done and stays silent when its console is no terminal.

    Args:
        unit: What is counted.
        console: Another place; whoever prints meanwhile to the same terminal must print to this console.
    """
    console = console or err()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        # results go to standard output whatever standard error is
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
