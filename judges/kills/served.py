"""A process of `fletchlog serve` that is killed and started again on its directory."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from judges.kills import shim

TOPIC = "t"
PARTITIONS = 2
CONFIG = {"group.initial.rebalance.delay.ms": "0", "log.segment.bytes": "200000"}


class Served:
    """The process, which is started anew on the same port."""

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        self.directory = directory
        self._config = CONFIG if config is None else config
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{free.getsockname()[1]}"
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Returns once clients can connect."""
        config = [word for pair in self._config.items() for word in ("--config", "=".join(pair))]
        command = [sys.executable, "-m", "fletchlog", "serve", str(self.directory), "--listen", self.bootstrap, "--print-address", *config]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"it does not start again: exit code {process.wait()}")
        return process

    def kill(self) -> None:
        """kill -9, and a start on what it left."""
        self.stay_killed()
        if shim.is_planted():
            for log in sorted(self.directory.glob(f"**/{TOPIC}-*/*.log"))[-1:]:
                with log.open("r+b") as file:
                    file.truncate(log.stat().st_size * 2 // 3)
        self.process = self.start()

    def stay_killed(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        """Ends it cleanly."""
        self.process.terminate()
        self.process.communicate(timeout=30)
