"""The preloaded library of the suites in this folder: it is built with cc, and the program is started again with it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
VARIABLE = "FLETCHLOG_SHIM"

# kinds of calls: `enum kind` of shim.c
WRITE, TRUNCATE, SYNC, SYNC_DIR, CREATE, RENAME, REMOVE, MAKE_DIR, READ, OPEN = (1 << bit for bit in range(10))


def is_planted() -> bool:
    """PLANTED: the disk does not keep what it says it keeps. Each suite must find it; the tests of this folder see to that."""
    return bool(os.environ.get("PLANTED"))


class Shim:
    """The library in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[VARIABLE])
        self._library.stop_failing.restype = ctypes.c_long

    def watch(self, directory: Path) -> None:
        """Only calls below this directory count from now on."""
        self._library.watch(os.fsencode(os.path.realpath(directory)))

    def kill_at(self, call: int, *, half: bool) -> None:
        """The process dies in front of its n-th call that changes something; in the middle of it if it is a write and `half`."""
        self._library.kill_at(ctypes.c_long(call), int(half))

    def fail_at(self, call: int, kinds: int, error: int, *, for_good: bool) -> None:
        """The n-th call of these kinds fails with an errno, and all that follow if `for_good`."""
        self._library.fail_at(ctypes.c_long(call), kinds, error, int(for_good))

    def stop_failing(self) -> int:
        """Calls work again; how many failed."""
        return int(self._library.stop_failing())

    def record_to(self, descriptor: int) -> None:
        """Records every change from now on."""
        self._library.record_to(descriptor)

    def note(self, text: bytes) -> None:
        """Puts a note between the recorded calls."""
        self._library.note(text, ctypes.c_size_t(len(text)))


def preloaded(module: str) -> Shim:
    """The library in this process; a program that was started without it is started again, as `python -m MODULE`."""
    if os.environ.get(VARIABLE):
        return Shim()
    if shutil.which("cc") is None:
        raise SystemExit(f"{module}: cc is missing. The suite preloads a small library; install a C compiler (Debian: apt-get install gcc libc6-dev).")
    library = Path(tempfile.mkdtemp(prefix="fletchlog-shim-")) / "shim.so"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(library)}
    try:
        done = subprocess.run([sys.executable, "-m", module, *sys.argv[1:]], env=environment, check=False)
    finally:
        shutil.rmtree(library.parent)
    raise SystemExit(done.returncode)
