"""Options that can be read without typer, whose import takes ten times as long as `fletchlog serve` needs to start.

A command lists its options as a table of `Option`: `fletchlog.cli.options.typer_command` shows it to typer, `read` reads ordinary
arguments by it. Help, completion and everything that is wrong remain typer's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LONGEST_NUMBER = 18  # digits


class Option:
    """An option, or the argument, of a command.

    Attributes:
        name: The parameter's name.
        kind: `bool` (a flag), `int`, `str`, or `list` (of texts: it may be repeated).
        text: What the help says, one sentence.
        default: Its value if it is not given.
        flags: How it is given; none: an argument.
        metavar: What the help shows in place of its value.
    """

    def __init__(self, name: str, kind: type, text: str, *, default: object = None, flags: tuple[str, ...] | None = None, metavar: str | None = None) -> None:
        self.name, self.kind, self.text, self.default, self.metavar = name, kind, text, default, metavar
        self.flags = (f"--{name.replace('_', '-')}",) if flags is None else flags


CONFIG = Option("config", list, "A property by Kafka's name; may be repeated.", flags=("--config", "-c"), metavar="NAME=VALUE")


def read(options: Sequence[Option], arguments: Sequence[str]) -> dict[str, Any] | None:
    """Values by name; None if typer has to read the arguments."""
    given: dict[str, Any] = {option.name: option.default for option in options}
    by_flag = {flag: option for option in options for flag in option.flags}
    places = [option for option in options if not option.flags]
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        if option is None:
            if word.startswith("-") or not word or not places:
                return None
            option, value = places.pop(0), word
        elif option.kind is bool:
            if equals:
                return None
            given[option.name] = True
            continue
        elif not equals:
            value = next(words, "-")
        elif not flag.startswith("--"):
            return None
        if value.startswith("-") or not _put(given, option, value):
            return None
    return given


def _put(given: dict[str, Any], option: Option, value: str) -> bool:
    """Whether the value is one that typer would take as it is."""
    if option.kind is list:
        given[option.name] = [*(given[option.name] or ()), value]
    elif option.kind is int:
        if not value.isascii() or not value.isdigit() or len(value) > LONGEST_NUMBER:
            return False
        given[option.name] = int(value)
    else:
        given[option.name] = value
    return True
