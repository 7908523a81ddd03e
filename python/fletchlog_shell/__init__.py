"""Where the command `fletchlog` begins: handles Ctrl-C before the package is imported, because the import takes a while."""

from __future__ import annotations

from fletchlog_shell import interrupts


def main() -> None:
    """Runs the command line."""
    interrupts.install()
    from fletchlog.cli import main as run

    run()
