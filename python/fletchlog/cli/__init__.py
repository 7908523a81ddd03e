"""The command `fletchlog`. One module per sub-command; `main` is the entry point."""

from __future__ import annotations

import sys

# what the extra `cli` brings
_NEEDED = {"typer", "rich", "pyarrow"}


def main() -> None:
    """Runs the command line, or says how to install what it needs."""
    try:
        from fletchlog.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        print(f"fletchlog: the command line needs {error.name}; install it with: pip install 'fletchlog[cli]'", file=sys.stderr)
        sys.exit(1)
    app()
