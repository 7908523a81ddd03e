"""The command `fletchlog`. One module per sub-command; `main` runs it."""

from __future__ import annotations

import sys

from fletchlog.cli import interrupts, streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """Runs the command line."""
    interrupts.install()
    wrong = streams.guard()
    if wrong is not None:
        _end(wrong)
    with interrupts.running():
        code = _run()
    sys.exit(code)


def _run() -> str | int | None:
    from fletchlog.cli.app import run

    code: str | int | None = 0
    try:
        try:
            run(sys.argv[1:], "python -m fletchlog" if sys.argv[0].endswith("__main__.py") else "fletchlog")
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
