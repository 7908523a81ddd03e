r"""What commands take. A command is a function; each of its parameters has what `argument` or `option` returns as its default, and its annotation is its kind.

| annotation                 | the command gets                                                      |
|----------------------------|-----------------------------------------------------------------------|
| `bool`                     | whether the flag is given                                             |
| `int`, `str`, `Path`       | a number, a text in UTF-8, a file of this machine                     |
| `Place`                    | what is named, if it is of one of the kinds that the command works on |
| `list[..]`                 | all of them: an option may be repeated, as a text of `NAME,..` may be |
| `.. \| None`               | None if it is not given                                               |
"""

from __future__ import annotations

import os

from fletchlog._place import CLUSTER, DIRECTORY, STORE, Place, refuse_within
from fletchlog.cli.common import CommandError, UsageError, fail, missing, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn

    Command = Callable[..., None]

HELP = ("--help", "-h")
# Options of Kafka's own tools, and of other servers.
_OF_KAFKA = {
    "--bootstrap-server": "the address is an argument, kafka://HOST:PORT",
    "--bootstrap-servers": "the address is an argument, kafka://HOST:PORT",
    "--topic": "the topic is an argument",
    "--from-beginning": "without a group, or in a new one, reading begins at the start of the log; --from says where else",
    "--max-messages": "-n is the number of records",
    "--port": "--listen takes HOST:PORT",
}
LOCAL, READABLE, ANYWHERE = (DIRECTORY,), (DIRECTORY, STORE), (DIRECTORY, STORE, CLUSTER)


class Parameter:
    """A parameter of a command.

    Attributes:
        flags: How it is given; `--no-..` is the opposite of a flag. None: an argument.
        text: What the help says, one sentence.
        default: Its value if it is not given; `...` if it has to be.
        metavar: What the help shows in place of its value.
        complete: Gives the words that a shell completes it with, by the place that is given and the properties of clients.
        places: What a `Place` may be.
        raw: A text may have any bytes, as paths have.
        name: What the user knows it as.
        writes: A file that the command makes, which is not in a place that it reads.
        adds_up: A text of several things with commas between them: an option that is repeated adds to them.
    """

    def __init__(
        self, flags: list[str], text: str, default: Any, metavar: str | None, complete: Any, places: Sequence[str], *, raw: bool, writes: bool
    ) -> None:
        self.flags, self.text, self.default, self.metavar, self.complete, self.places, self.raw = flags, text, default, metavar, complete, places, raw
        self.writes = writes
        self.name = max(flags, key=len) if flags else metavar or ""
        self.adds_up = bool(flags) and (metavar or "").endswith(",..")


def argument(metavar: str, text: str, default: Any = ..., *, complete: Any = None, places: Sequence[str] = LOCAL) -> Any:
    """A parameter that is given by its place."""
    return Parameter([], text, default, metavar, complete, places, raw=False, writes=False)


def option(
    flags: str,
    text: str,
    default: Any = None,
    metavar: str | None = None,
    *,
    complete: Any = None,
    raw: bool = False,
    writes: bool = False,
) -> Any:
    """A parameter that is given by one of its `flags`, with blanks between them."""
    return Parameter(flags.split(), text, default, metavar, complete, LOCAL, raw=raw, writes=writes)


def parameters(function: Command) -> dict[str, tuple[Parameter, str, bool]]:
    """By name, each with its kind, and whether it is a list."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults: Iterable[Any] = function.__defaults__ or ()
    found = {}
    for name, parameter in zip(names, defaults, strict=True):
        kind = function.__annotations__[name].removesuffix(" | None")
        found[name] = parameter, kind.removeprefix("list[").removesuffix("]"), kind.startswith("list[")
    return found


def flags_of(function: Command) -> dict[str, tuple[str, bool]]:
    """Each flag with the name of its parameter, and whether a value follows it."""
    return {flag: (name, kind != "bool") for name, (parameter, kind, _) in parameters(function).items() for flag in parameter.flags}


def split(function: Command, words: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    """Options, each with its value or None, and arguments, which may be between options. A flag with a value takes the next word whatever it is."""
    flags = flags_of(function)
    options: list[tuple[str, str | None]] = []
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            arguments += rest
        elif not word.startswith("-") or word == "-":
            arguments.append(word)
        elif word in flags:
            options.append((word, next(rest, None) if flags[word][1] else None))
        elif word[:2] in flags and flags[word[:2]][1]:
            options.append((word[:2], word[2:]))
        else:
            flag, equals, value = word.partition("=")
            options.append((flag, value if equals else None))
    return options, arguments


def read(prog: str, function: Command, words: Sequence[str]) -> dict[str, Any]:
    """The values for a command. Help, and what cannot be read, ends the process.

    Raises:
        UsageError: A text is not UTF-8, or empty where a name is wanted.
        CommandError: A place is of a kind that the command does not work on.
        fletchlog.errors.InvalidArgumentError: A text begins as a URI and is not one, or a file would be written into a place that is read.
    """
    known, flags = parameters(function), flags_of(function)
    options, arguments = split(function, words)
    if any(flag in HELP for flag, _ in options):
        from fletchlog.cli import help_

        help_.of_command(prog, function)
        raise SystemExit(0)
    texts: dict[str, Any] = {}
    for flag, value in options:
        if flag not in flags:
            wrong(prog, missing("option", flag, flags, _OF_KAFKA.get(flag, "")).rstrip("; "))
        name, valued = flags[flag]
        if valued == (value is None):
            wrong(prog, f"{flag} wants a value" if valued else f"{flag} takes no value")
        parameter, _, several = known[name]
        before = texts.get(name)
        if several:
            texts[name] = [*(before or []), value]
        elif valued and before is not None and parameter.adds_up:
            texts[name] = f"{before},{value}"
        elif before is not None and (valued or before != flag):
            wrong(prog, f"{parameter.name} is given twice" if valued else f"{before} and {flag} do not go together")
        else:
            texts[name] = value if valued else flag
    for name, (parameter, _, several) in known.items():
        if not parameter.flags and arguments:
            texts[name], arguments = (arguments, []) if several else (arguments[0], arguments[1:])
    if arguments:
        wrong(prog, f"there is no use for {arguments[0]}")
    values = {name: _value(prog, texts.get(name), *known[name]) for name in known}
    sources = [place for value in values.values() for place in (value if isinstance(value, list) else [value]) if isinstance(place, Place)]
    for written in (values[name] for name, (parameter, _, _) in known.items() if parameter.writes and values[name] is not None):
        for source in sources if str(written) != "-" else ():
            refuse_within(written, source)
    return values


def wrong(prog: str, message: str) -> NoReturn:
    """Ends the process with a sentence and code 2."""
    fail(f"{message}; `{prog} --help` says what there is", 2)


def _value(prog: str, text: Any, parameter: Parameter, kind: str, several: bool) -> Any:
    if text is None:
        if parameter.default is ...:
            wrong(prog, f"{parameter.name} is missing")
        return parameter.default
    if several:
        return [_value(prog, item, parameter, kind, several=False) for item in text]
    if kind == "bool":
        return not (is_opposite(parameter) and text == parameter.flags[1])
    if kind != "int":
        return _taken(text, kind, parameter)
    try:
        return int(text)
    except ValueError:
        wrong(prog, f"{parameter.name} wants a whole number, got {text}")


def is_opposite(parameter: Parameter) -> bool:
    """Whether the second flag is the opposite of the first."""
    return len(parameter.flags) > 1 and all(flag.startswith("--") for flag in parameter.flags)


def _taken(text: str, kind: str, parameter: Parameter) -> Any:
    """A text as a command takes it."""
    name = parameter.name
    # what a shell completes is a name
    if kind == "str" and parameter.complete is not None and not text.strip():
        raise UsageError(f"{name} is empty")
    if "\0" in text:
        raise UsageError(f"{name} has a byte that is 0")
    if kind == "str":
        return text if parameter.raw else _decoded(text, name)
    from fletchlog.errors import InvalidArgumentError

    try:
        place = Place(text)
    except InvalidArgumentError:
        _decoded(text, name)
        raise
    if kind == "Path":
        if place.kind != DIRECTORY:
            raise CommandError(f"{place}: {name} is a file of this machine")
        from pathlib import Path

        return Path(place.name)
    if place.kind not in parameter.places:
        refuse(place)
    return place


def _decoded(text: str, name: str) -> str:
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise UsageError(f"{name} is no text in UTF-8: {text}") from None
