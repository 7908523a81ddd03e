"""What a shell completes: `fletchlog --complete WORD ..` prints the words that the last one may become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fletchlog._place import Place
from fletchlog.cli.app import COMMANDS, loaded
from fletchlog.cli.arguments import flags_of, parameters, split
from fletchlog.cli.common import CommandError, configured
from fletchlog.cli.text import note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fletchlog.cli.arguments import Command

BASH = """_fletchlog() { local IFS=$'\\n'; COMPREPLY=($(fletchlog --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)); }
complete -o default -o nosort -F _fletchlog fletchlog"""
SCRIPTS = {
    "bash": (".bashrc", BASH),
    "zsh": (".zshrc", f"autoload -U +X compinit && compinit; autoload -U +X bashcompinit && bashcompinit\n{BASH.replace(' -o nosort', '')}"),
    "fish": (
        ".config/fish/completions/fletchlog.fish",
        "complete -c fletchlog -a '(fletchlog --complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'",
    ),
}


def show(*, install: bool) -> None:
    """Prints what completes for the shell that is in use, or adds it to the file that this shell reads.

    Raises:
        CommandError: It is none that can be served.
    """
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SCRIPTS:
        raise CommandError(f"completion is for {', '.join(SCRIPTS)}; the environment variable SHELL names {shell or 'none'}")
    name, script = SCRIPTS[shell]
    if not install:
        print(script)
        return
    file = Path.home() / name
    before = file.read_text() if file.exists() else ""
    if script not in before:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{before}\n{script}\n".lstrip("\n"))
    note(f"{file} completes the command from the next start of {shell} on")


def complete(words: Sequence[str]) -> None:
    """Prints what the last word may become; a half-typed line is no place for an error."""
    *before, last = words or [""]
    try:
        candidates = list(_candidates(before, last))
    except Exception:  # noqa: BLE001 - whatever it is
        return
    for candidate in candidates:
        if candidate.startswith(last):
            print(candidate)


def _candidates(before: Sequence[str], last: str) -> Iterable[str]:
    if not before or before[0] not in COMMANDS:
        return [] if before else [*COMMANDS, "--help", "--version"]
    command = loaded(before[0])
    if callable(command):
        return _of_command(command, before[1:], last)
    return _of_command(command[before[1]], before[2:], last) if len(before) > 1 else [*command, "--help"]


def _of_command(command: Command, before: Sequence[str], last: str) -> Iterable[str]:
    """Flags, or the names that the parameter takes which is in line."""
    known = parameters(command)
    options, arguments = split(command, before)
    waiting = options[-1][0] if options and options[-1][1] is None and before[-1] == options[-1][0] else ""
    name, valued = flags_of(command).get(waiting, ("", False))
    if valued:
        parameter = known[name][0]
    elif last.startswith("-"):
        return [*(flag for parameter, _, _ in known.values() for flag in parameter.flags if flag.startswith("--")), "--help"]
    else:
        places = [(parameter, several) for parameter, _, several in known.values() if not parameter.flags]
        places += [places[-1]] * len(arguments) if places and places[-1][1] else []
        if len(arguments) >= len(places):
            return []
        parameter = places[len(arguments)][0]
    if parameter.complete is None or not arguments:
        return []
    file = dict(options).get("--command-config")
    names = parameter.complete(Place(arguments[0]), configured(file))
    # the last one of a list with commas
    listed = last.rpartition(",")[0] if "," in (parameter.metavar or "") else ""
    return [f"{listed},{name}" if listed else name for name in names]
