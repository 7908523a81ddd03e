"""Members of groups in processes of their own, through confluent-kafka."""

import json
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "wire" / "clients"


class Member:
    """A process; what it prints is in `log`. It subscribes to a topic, or to an expression that begins with ^; `_` in a property's name is a dot."""

    program = "member.py"

    def __init__(self, topic: str, log: Path, **config: object) -> None:
        self.log = log
        words = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
        with log.open("ab") as out:
            self._process = subprocess.Popen([sys.executable, PROGRAMS / self.program, topic, *words], stdout=out)

    def notes(self, kind: str) -> list:
        """Everything of a kind that it has printed."""
        whole = self.log.read_bytes().rpartition(b"\n")[0]
        return [note[kind] for note in map(json.loads, whole.splitlines()) if kind in note]

    def owns(self) -> list[int]:
        """Its partitions."""
        return (self.notes("owns") or [[]])[-1]

    def read(self) -> list[int]:
        """The values that it has read."""
        return [value for values in self.notes("read") for value in values]

    def kill(self) -> None:
        """Signal 9."""
        self._process.kill()
        self._process.wait()


class ShareMember(Member):
    """A member of a share group, in explicit mode."""

    program = "share_member.py"

    def delivered(self) -> list[tuple[int, int]]:
        """Each delivery: partition, offset."""
        return [(partition, offset) for rows in self.notes("read") for partition, offset, _, _ in rows]

    def accepted(self) -> set[tuple[int, int]]:
        """What the broker has confirmed: partition, offset."""
        return {(partition, offset) for rows in self.notes("accepted") for partition, offset in rows}


def until(reached, seconds: float = 60) -> None:
    """Returns once it is so."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
