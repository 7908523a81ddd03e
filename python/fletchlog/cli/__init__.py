"""The command `fletchlog`. One module per sub-command; `main` runs it."""

from __future__ import annotations

import sys

from fletchlog.cli import streams
from fletchlog_shell import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

# what the extra `cli` brings
_NEEDED = {"typer", "rich", "pyarrow"}


def main() -> None:
    """Runs the command line, or says how to install what it needs."""
    interrupts.install()
    wrong = streams.guard()
    if wrong is not None:
        _end(wrong)
    try:
        run = _command(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        _end(f"the command line needs {error.name}; install it with: pip install 'fletchlog[cli]'")
    with interrupts.running():
        code = _run(run)
    sys.exit(code)


def _command(arguments: list[str]) -> Callable[[], object]:
    """What the command line asks for. `serve` with ordinary options starts without the libraries that the others need."""
    if arguments[:1] == ["serve"]:
        from fletchlog.cli import plain
        from fletchlog.cli.serve import OPTIONS, serve

        options = plain.read(OPTIONS, arguments[1:])
        if options is not None:
            return lambda: serve(**options)
    from fletchlog.cli.app import app

    return app


def _run(command: Callable[[], object]) -> str | int | None:
    code: str | int | None = 0
    try:
        try:
            command()
        except SystemExit as ended:
            code = ended.code
        streams.finish()
    except streams.PipeClosedError:
        streams.discard()
    except OSError as error:
        streams.discard()
        if code == 0:  # else it has been said
            _end(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        streams.discard()
        return interrupts.INTERRUPTED
    return code


def _end(message: str) -> NoReturn:
    print(f"fletchlog: {message}", file=sys.stderr)
    sys.exit(1)
