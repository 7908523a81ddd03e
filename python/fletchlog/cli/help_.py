"""The texts of `--help`."""

from __future__ import annotations

import re
import shutil
import textwrap

from fletchlog.cli.arguments import is_opposite, parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.cli.arguments import Command, Parameter

_INDENT = 24
_VALUES = {"bool": "", "int": " N", "str": " TEXT", "Path": " FILE"}


def of_group(prog: str, text: str, commands: Mapping[str, str], options: Sequence[tuple[str, str]]) -> None:
    """Prints what there is in a group."""
    _show(f"{prog} COMMAND ...", text, {"commands": list(commands.items()), "options": options})


def of_command(prog: str, function: Command) -> None:
    """Prints what a command does, and takes."""
    known = parameters(function).values()
    places = [(f"{one.metavar}{'...' if several else ''}", one) for one, _, several in known if not one.flags]
    usage = " ".join([prog, "[OPTIONS]", *(name if one.default is ... else f"[{name}]" for name, one in places)])
    arguments = [(one.metavar or "", one.text) for _, one in places]
    options = [(_flags(one, kind), f"{one.text}{_default(one)}") for one, kind, _ in known if one.flags]
    _show(usage, function.__doc__ or "", {"arguments": arguments, "options": [*options, ("--help, -h", "Show this text.")]})


def _flags(parameter: Parameter, kind: str) -> str:
    value = f" {parameter.metavar}" if parameter.metavar else _VALUES.get(kind, "")
    return (" / " if is_opposite(parameter) else ", ").join(parameter.flags) + value


def _default(parameter: Parameter) -> str:
    return "" if parameter.default in (None, False, "", ...) else f" [default: {parameter.default}]"


def _show(usage: str, text: str, lists: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    width = min(shutil.get_terminal_size().columns, 100) - 2
    first, _, rest = text.partition("\n")
    paragraphs = re.split(r"\n\s*\n", f"{first}\n{textwrap.dedent(rest)}".strip())
    parts = [f"usage: {usage}"]
    for part in paragraphs:
        # an example keeps its line, below the one before it
        if not part.startswith((" ", "fletchlog ")):
            parts.append(textwrap.fill(part, width))
        elif parts[-1].startswith("  "):
            parts[-1] += f"\n  {part.strip()}"
        else:
            parts.append(f"  {part.strip()}")
    for title, rows in lists.items():
        if rows:
            parts.append("\n".join([f"{title}:", *(_row(name, meaning, width) for name, meaning in rows)]))
    print("\n\n".join(parts))


def _row(name: str, meaning: str, width: int) -> str:
    lines = textwrap.fill(meaning, max(width, _INDENT + 20), initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT)
    start = f"  {name}"
    return f"{start.ljust(_INDENT)}{lines[_INDENT:]}" if len(start) < _INDENT - 1 else f"{start}\n{lines}"
