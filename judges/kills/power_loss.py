"""Takes the power from a process with threads, from its recorded system calls.

The threads of `workload` work at level fsync for a moment, while every call that changes the directory is recorded, with the notes
between them. Then power losses are played at random calls: `disk` makes a directory of what may be left. Each must open, and hold
everything that was acknowledged before that call, once and in order, transactions whole or absent, the group's offset not behind.

`python -m judges.kills.power_loss` prints one line for each violation, then `power-loss: N images (..), V violations`. IMAGES (default
1,000), TIME_LIMIT (seconds) and SEED are taken from the environment. What threads do at once is not replayed by a seed:
a recording that shows a violation is kept, and its path is printed.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from settings import count, seconds

import fletchlog as fl
from judges.kills import shim
from judges.kills.disk import Disk, Entry, entries
from judges.kills.history import CONFIG, Check, History, damage
from judges.kills.processes import in_child
from judges.kills.workload import Workload

NAME = "power-loss"
WORK_SECONDS = 1.0
IMAGES_PER_RECORDING = 40


def record(preloaded: shim.Shim, root: Path, rng: random.Random) -> list[Entry]:
    """Works in a directory in a process of its own. The calls it made; they must lead to the files that are there."""
    directory, recording = root / "log", root / "recording"
    directory.mkdir()

    def work(_: int) -> None:
        preloaded.watch(directory)
        preloaded.record_to(os.open(recording, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        workload = Workload(directory, 0, rng, lambda *note: preloaded.note(json.dumps(note).encode()))
        time.sleep(WORK_SECONDS)
        workload.finish()

    ended = in_child(work)
    if not ended.well:
        raise RuntimeError(str(ended))
    found = list(entries(recording.read_bytes()))
    disk = Disk(os.path.realpath(directory))
    for entry in found:
        disk.take(entry)
    there = {os.path.realpath(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    if disk.whole() != there:
        different = sorted(path for path in {*there, *disk.whole()} if there.get(path) != disk.whole().get(path))
        raise RuntimeError(f"the recording misses calls; it leads to other files: {different}")
    return found


def look(directory: Path, notes: list[bytes]) -> list[str]:
    """Opens what is left: what is wrong with it."""
    with fl.Broker(directory, create=True, config=CONFIG) as broker:
        check = Check(broker, History().take(json.loads(note) for note in notes), gapless=True)
    return check.wrong + damage(directory)


def image(root: Path, calls: list[Entry], rng: random.Random) -> tuple[int, list[str]]:
    """A power loss at one of the calls: which, and what is wrong."""
    disk, call, left = Disk(os.path.realpath(root / "log")), rng.randint(1, len(calls)), root / "left"
    for entry in calls[:call]:
        if not (entry.kind == "e" and entry.path.endswith(".log") and shim.is_planted()):
            disk.take(entry)
    disk.lose_power(rng, left)
    wrong = looked_at(left, disk.notes)
    shutil.rmtree(left)
    return call, wrong


def looked_at(left: Path, notes: list[bytes]) -> list[str]:
    """`look` in a process of its own."""
    act: Callable[[int], object] = lambda out: os.write(out, json.dumps(look(left, notes)).encode())  # noqa: E731
    ended = in_child(act)
    return json.loads(ended.output) if ended.well else [f"what is left cannot be opened and read: {ended}"]


def main() -> int:
    """Takes the power so often, or for so long."""
    wanted, limit, seed = count(NAME, "IMAGES", 1000), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("judges.kills.power_loss")
    rng, deadline = random.Random(seed), time.monotonic() + limit
    done = recordings = made = acknowledged = violations = 0
    while done < wanted and time.monotonic() < deadline:
        root = Path(tempfile.mkdtemp(prefix="fletchlog-power-"))
        calls = record(preloaded, root, rng)
        recordings, made = recordings + 1, made + len(calls)
        acknowledged += sum(entry.kind == "N" and entry.data.startswith(b'["sent"') for entry in calls)
        before = violations
        for _ in range(IMAGES_PER_RECORDING):
            if done >= wanted or time.monotonic() >= deadline:
                break
            image_seed = rng.randrange(1 << 30)
            call, wrong = image(root, calls, random.Random(image_seed))
            done, violations = done + 1, violations + bool(wrong)
            for line in wrong[:10]:
                print(f"{NAME}: call {call} of {root / 'recording'}, image {image_seed}: {line}", flush=True)
        if violations == before:
            shutil.rmtree(root)
    counts = f"{recordings} recordings of {made} calls, {acknowledged} acknowledged records"
    print(f"{NAME}: {done} images ({counts}), {violations} violations (seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
