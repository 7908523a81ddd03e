"""Processes with clients at work: ours (`load.py`) and Java's (`java/clients/Load.java`), which take the same lines and print the same notes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import kafka

ROOT = Path(__file__).resolve().parents[2]
# a machine that does other things too
LIMIT_SECONDS = 120
Note = dict[str, Any]


class Clients:
    """A process; `worker` gives it clients. It is killed if it is not closed."""

    def __init__(self, name: str, command: list[str], scratch: Path) -> None:
        self.name = name
        self.printed, self.errors = scratch / f"{name}.jsonl", scratch / f"{name}.err"
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        with self.printed.open("wb") as out, self.errors.open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment)

    @classmethod
    def ours(cls, address: str, scratch: Path, name: str = "ours") -> Clients:
        """Of fletchlog."""
        return cls(name, [sys.executable, "-m", "judges.interop.load", address], scratch)

    @classmethod
    def java(cls, release: str, address: str, scratch: Path, name: str = "java") -> Clients:
        """Of a release of Kafka."""
        classes = kafka.classpath("clients", [("kafka-clients", release)])
        return cls(name, [*kafka.JVM, "-Xmx256m", "-cp", classes, "Load", address], scratch)

    def worker(self, kind: str, process: int, *words: object, **config: object) -> None:
        """Starts one, in the words of `load.py`; `_` in the name of a property stands for a dot."""
        properties = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
        self._say(" ".join(map(str, [kind, process, *words, *properties])))

    def end(self, process: int) -> None:
        """Ends one worker; returns once it has ended."""
        self._say(f"end {process}")
        self.wait(("end", process), lambda notes: any(note.get("ended") == process for note in notes))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def notes(self) -> list[Note]:
        """What it has printed so far."""
        whole = self.printed.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def wait(self, what: object, reached: Callable[[list[Note]], bool]) -> None:
        """Until its notes say so."""
        end = time.monotonic() + LIMIT_SECONDS
        while not reached(notes := self.notes()):
            assert time.monotonic() < end, f"{self.name}: {LIMIT_SECONDS} s without {what}\n{notes[-3:]}\n{self.errors.read_text()[-4000:]}"
            self._assert_no_surprise(notes)
            assert self._process.poll() is None, f"{self.name} has ended\n{self.errors.read_text()[-4000:]}"
            time.sleep(0.3)

    def await_progress(self, processes: list[int]) -> None:
        """Returns once each of these has done something from now on that succeeded."""
        now = time.monotonic_ns()

        missing = set(processes)

        def done(notes: list[Note]) -> bool:
            missing.difference_update(note["process"] for note in notes if note.get("outcome") == "ok" and note["begin"] > now)
            return not missing

        self.wait(("progress", missing), done)

    def close(self) -> None:
        """Ends every worker, then the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT_SECONDS) == 0, self.errors.read_text()[-4000:]
        self._assert_no_surprise(self.notes())

    def _assert_no_surprise(self, notes: list[Note]) -> None:
        surprises = [note["surprise"] for note in notes if "surprise" in note]
        assert not surprises, f"{self.name}: {surprises}\n{self.errors.read_text()[-4000:]}"

    def kill(self) -> None:
        """Signal 9."""
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdin is not None
        self._process.stdin.close()
