"""Standard output: its reader may end, its disk may be full, and it may be closed from the start."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer


class PipeClosedError(Exception):
    """The reader of standard output (`| head`) has ended. No OSError, because libraries handle those themselves."""


class _Stdout(io.FileIO):
    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise PipeClosedError from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None


def guard() -> str | None:
    """Prepares the standard streams for a command; returns what is wrong with them.

    A file that is opened must not get the number of a closed standard stream: what is printed would go into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - open to the end
    if sys.stdout is None:
        return "standard output is closed; if nothing is to be shown, redirect it to /dev/null"
    sys.stdout.flush()
    # what the encoding of the terminal lacks is shown as an escape
    raw = io.BufferedWriter(_Stdout(1, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, sys.stdout.encoding, "backslashreplace", line_buffering=sys.stdout.isatty())
    return None


def finish() -> None:
    """Writes what is still held back.

    Raises:
        PipeClosedError: The reader has gone.
        OSError: It cannot be written. In either case call `discard`, or the interpreter will try again.
    """
    sys.stdout.flush()


def discard() -> None:
    """Gives up standard output: what is held back goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
