"""The command `fletchlog`. One module per sub-command; `main` runs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from fletchlog.cli import streams
from fletchlog_shell import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

# what the extra `cli` brings
_NEEDED = {"typer", "rich", "pyarrow"}


def main() -> None:
    """Runs the command line, or says how to install what it needs."""
    interrupts.install()
    wrong = streams.guard()
    if wrong is not None:
        _end(wrong)
    try:
        from fletchlog.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        _end(f"the command line needs {error.name}; install it with: pip install 'fletchlog[cli]'")
    with interrupts.running():
        code = _run(app)
    sys.exit(code)


def _run(app: Callable[[], None]) -> str | int | None:
    code: str | int | None = 0
    try:
        try:
            app()
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
