"""Processes that may die or hang, and what they have to say before."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Nothing here takes nearly as long, on a busy machine either.
HANG_SECONDS = 90
ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """For processes that import this package: pytest finds it without a PYTHONPATH."""
    path = [str(ROOT), str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


@dataclass
class Ended:
    """How a process ended, and what it wrote."""

    status: int
    hung: bool
    output: bytes
    errors: str

    @property
    def well(self) -> bool:
        """By itself, with exit code 0."""
        return self.status == 0

    @property
    def was_killed(self) -> bool:
        """By SIGKILL, and not because it hung."""
        return not self.hung and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    def __str__(self) -> str:
        if self.hung:
            how = "hung"
        elif os.WIFSIGNALED(self.status):
            how = f"died by signal {os.WTERMSIG(self.status)}"
        else:
            how = f"ended with exit code {os.waitstatus_to_exitcode(self.status)}"
        return "\n    ".join([f"the process {how}", *self.errors.splitlines()])


def in_child(act: Callable[[int], object]) -> Ended:
    """Runs it in a forked process, which is ended if it hangs. `output` is what it writes to the descriptor it is given, `errors` the
    end of its standard error."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reader)
                os.dup2(errors.fileno(), 2)
                faulthandler.dump_traceback_later(HANG_SECONDS - 1, file=2)
                act(writer)
                status = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc(limit=-3, file=sys.__stderr__)
                sys.__stderr__.flush()
            finally:
                os._exit(status)
        os.close(writer)
        output, end, hung = b"", time.monotonic() + HANG_SECONDS, False
        while not hung:
            ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
            hung = not ready
            if ready:
                part = os.read(reader, 1 << 16)
                if not part:
                    break
                output += part
        os.close(reader)
        if hung:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        errors.seek(max(0, os.fstat(errors.fileno()).st_size - 1500))
        return Ended(status, hung, output, errors.read().decode(errors="replace"))


def processes_of(session: int) -> dict[int, bytes]:
    """The command line of every process of a session (see setsid) that has not ended, by its id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
    return found
