r"""What commands take. A command is a function; each of its parameters has what `argument` or `option` returns as its default, and its annotation is its kind.

| annotation                 | the command gets                                                      |
|----------------------------|-----------------------------------------------------------------------|
| `bool`                     | whether the flag is given                                             |
| `int`, `str`, `Path`       | a number, a text in UTF-8, a file of this machine                     |
| `Place`                    | what is named, if it is of one of the kinds that the command works on |
| `list[..]`                 | all of them: an option may be repeated                                |
| `.. \| None`               | None if it is not given                                               |
"""

from __future__ import annotations

import argparse
import os
import re
import textwrap

from fletchlog._place import CLUSTER, DIRECTORY, STORE, Place
from fletchlog.cli.common import CommandError, UsageError, fail, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    Command = Callable[..., None]

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
    """

    def __init__(self, flags: list[str], text: str, default: Any, metavar: str | None, complete: Any, places: Sequence[str], *, raw: bool) -> None:
        self.flags, self.text, self.default, self.metavar, self.complete, self.places, self.raw = flags, text, default, metavar, complete, places, raw


def argument(metavar: str, text: str, default: Any = ..., *, complete: Any = None, places: Sequence[str] = LOCAL, raw: bool = False) -> Any:
    """A parameter that is given by its place."""
    return Parameter([], text, default, metavar, complete, places, raw=raw)


def option(
    flags: str, text: str, default: Any = None, metavar: str | None = None, *, complete: Any = None, places: Sequence[str] = LOCAL, raw: bool = False
) -> Any:
    """A parameter that is given by one of its `flags`, with blanks between them."""
    return Parameter(flags.split(), text, default, metavar, complete, places, raw=raw)


def parameters(function: Command) -> dict[str, tuple[Parameter, str, bool]]:
    """By name, each with its kind, and whether it is a list."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults: Iterable[Any] = function.__defaults__ or ()
    found = {}
    for name, parameter in zip(names, defaults, strict=True):
        kind = function.__annotations__[name].removesuffix(" | None")
        found[name] = parameter, kind.removeprefix("list[").removesuffix("]"), kind.startswith("list[")
    return found


class _Help(argparse.HelpFormatter):
    """Keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        first, _, rest = text.partition("\n")
        paragraphs = re.split(r"\n\s*\n", f"{first}\n{textwrap.dedent(rest)}".strip())
        return "\n\n".join(part if part.startswith((" ", "fletchlog ")) else super(_Help, self)._fill_text(part, width, indent) for part in paragraphs)


class Parser(argparse.ArgumentParser):
    """Ends with one sentence and code 2 for what it cannot read."""

    def __init__(self, prog: str, text: str | None, usage: str) -> None:
        super().__init__(prog, f"{prog} {usage}", text, formatter_class=_Help, allow_abbrev=False)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Python before 3.13 drops this value of an option
        return "--" if action.option_strings and arg_strings == ["--"] else super()._get_values(action, arg_strings)

    def error(self, message: str) -> Any:
        """As argparse calls it."""
        fail(f"{message}; `{self.prog} --help` says what there is", 2)


def parser(prog: str, function: Command) -> Parser:
    """What reads the arguments of a command."""
    found = parameters(function)
    words = [_usage(parameter, several=several) for parameter, _, several in found.values() if not parameter.flags]
    made = Parser(prog, function.__doc__, " ".join(["[OPTIONS]", *words]))
    for name, (parameter, kind, several) in found.items():
        default = None if parameter.default is ... else parameter.default
        shown = "" if default is None or default is False or default == "" else f" [default: {default}]"
        keywords: dict[str, Any] = {"help": f"{parameter.text}{shown}".replace("%", "%%")}
        if kind == "bool":
            for flag, action in (
                zip(parameter.flags, ("store_true", "store_false"), strict=False) if _opposite(parameter) else ((parameter.flags, "store_true"),)
            ):
                made.add_argument(*([flag] if isinstance(flag, str) else flag), dest=name, action=action, default=default, **keywords)
            continue
        keywords |= {"metavar": parameter.metavar or {"int": "N", "str": "TEXT"}.get(kind, "FILE"), "type": int if kind == "int" else str, "default": default}
        if parameter.flags:
            made.add_argument(*parameter.flags, dest=name, action="append" if several else "store", required=parameter.default is ..., **keywords)
        else:
            optional = parameter.default is not ...
            made.add_argument(name, nargs=("*" if optional else "+") if several else "?" if optional else None, **keywords)
    return made


def _opposite(parameter: Parameter) -> bool:
    """Whether the second flag is the opposite of the first."""
    return len(parameter.flags) > 1 and all(flag.startswith("--") for flag in parameter.flags)


def _usage(parameter: Parameter, *, several: bool) -> str:
    name = f"{parameter.metavar}{'...' if several else ''}"
    return name if parameter.default is ... else f"[{name}]"


def split(function: Command, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options, each with its value, and arguments. An option takes the next word whatever it is, and arguments may be between options."""
    valued = {flag: max(parameter.flags, key=len) for parameter, kind, _ in parameters(function).values() if kind != "bool" for flag in parameter.flags}
    options: list[str] = []
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in valued:
            value = next(rest, None)
            options.append(word if value is None else f"{valued[word]}={value}")
        elif word == "--":
            arguments += rest
        elif word.startswith("-") and len(word) > 1:
            options.append(word)
        else:
            arguments.append(word)
    return options, arguments


def ordered(function: Command, words: Sequence[str]) -> list[str]:
    """The words as argparse reads them."""
    options, arguments = split(function, words)
    return [*options, "--", *arguments] if any(word.startswith("-") and len(word) > 1 for word in arguments) else [*arguments, *options]


def read(prog: str, function: Command, words: Sequence[str]) -> dict[str, Any]:
    """The values for a command.

    Raises:
        UsageError: A text is none.
        CommandError: A place is of a kind that the command does not work on.
        fletchlog.errors.InvalidArgumentError: A URI is none.
    """
    given = vars(parser(prog, function).parse_args(ordered(function, words)))
    for name, (parameter, kind, several) in parameters(function).items():
        value = given[name]
        if kind in {"str", "Path", "Place"} and value is not None:
            given[name] = [_taken(item, kind, parameter) for item in value] if several else _taken(value, kind, parameter)
        elif several and value == []:
            given[name] = None
    return given


def _taken(text: str, kind: str, parameter: Parameter) -> Any:
    """A text as a command takes it."""
    name = max(parameter.flags, key=len) if parameter.flags else parameter.metavar
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


def _decoded(text: str, name: str | None) -> str:
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise UsageError(f"{name} is no text in UTF-8: {text}") from None
