"""A disk that loses its power, from the recorded calls of a real process.

The rules are those of the simulated disk of `rust/sim`: fsync of a file makes its bytes durable and not its name, fsync of a directory makes
its names durable and not the bytes of its files, and it covers what was done before it began. Of everything else any part may
be left, in any order: a write whole, torn at sectors, as zeros (the size is there, the bytes are not) or not at all.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# `struct entry` of shim.c, and the sizes of its path and its data
_ENTRY = struct.Struct("=cQqII")
SECTOR = 512


@dataclass
class Entry:
    """A call that was made, or a note."""

    kind: str
    inode: int
    at: int
    path: str
    data: bytes


def entries(recording: bytes) -> Iterator[Entry]:
    """What was recorded, in order."""
    place = 0
    while place < len(recording):
        kind, inode, at, path_size, data_size = _ENTRY.unpack_from(recording, place)
        place += _ENTRY.size
        path, data = recording[place : place + path_size], recording[place + path_size : place + path_size + data_size]
        place += path_size + data_size
        yield Entry(kind.decode(), inode, at, path.decode(), data)


def write(data: bytearray, at: int, part: bytes) -> None:
    """Puts bytes into a file, which grows with zeros where it is too short."""
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    data[at : at + len(part)] = part


def cut(data: bytearray, size: int) -> None:
    """ftruncate."""
    del data[size:]
    data.extend(bytes(size - len(data)))


@dataclass
class File:
    """Bytes that are on the disk, and the changes that are not: number, position and bytes, or a new size."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)

    def sync(self, before: int) -> None:
        """Everything that was done before that number is on the disk."""
        for _, at, part in (change for change in self.pending if change[0] < before):
            cut(self.durable, at) if part is None else write(self.durable, at, part)
        self.pending = [change for change in self.pending if change[0] >= before]

    def left(self, rng: random.Random, kept: float) -> bytes:
        """What a power loss leaves; each change survives with probability `kept`, else not or in parts."""
        data = bytearray(self.durable)
        for _, at, part in self.pending:
            fate = "whole" if rng.random() < kept else rng.choice(["lost", "torn", "zeros"])
            if part is None:
                if fate == "whole":
                    cut(data, at)
            elif fate == "whole":
                write(data, at, part)
            elif fate == "zeros":
                cut(data, max(len(data), at + len(part)))
            elif fate == "torn":
                for sector in range(at // SECTOR, (at + len(part) - 1) // SECTOR + 1):
                    first, last = max(at, sector * SECTOR), min(at + len(part), (sector + 1) * SECTOR)
                    if rng.random() < 0.5:
                        write(data, first, part[first - at : last - at])
        return bytes(data)


Names = dict[str, File | None]  # None: a directory


def parent(path: str) -> str:
    """The directory of a path."""
    return path.rpartition("/")[0]


def below(names: Names, path: str) -> list[str]:
    """A name, and those of everything in it."""
    return [name for name in names if name == path or name.startswith(f"{path}/")]


def apply(names: Names, kind: str, path: str, what: File | str | None) -> None:
    """A change of names. If an earlier one is lost, something may still be where this one puts its own: that goes."""
    target = what if isinstance(what, str) else path
    moved = {target + name[len(path) :]: names.pop(name) for name in below(names, path)} if kind == "r" else {}
    if target in names and (kind != "r" or moved):
        for name in below(names, target):
            del names[name]
    if kind == "r":
        names.update(moved)
    elif kind != "u":
        names[path] = what if isinstance(what, File) else None


def rebased(goal: File | str | None, old: str, new: str) -> File | str | None:
    """Where a rename within a directory leads when that directory has moved."""
    return new + goal[len(old) :] if isinstance(goal, str) and goal.startswith(f"{old}/") else goal


class Disk:
    """What was done so far, call by call, and what would be left of it."""

    def __init__(self, root: str) -> None:
        self.root, self.number = root, 0
        self.live: Names = {}
        self.durable: Names = {}
        self.pending: list[tuple[int, str, str, File | str | None]] = []
        self.by_inode: dict[int, File] = {}
        self.syncs: dict[int, tuple[int, File | str]] = {}
        self.notes: list[bytes] = []

    def take(self, entry: Entry) -> None:
        """One recorded call more."""
        self.number += 1
        match entry.kind:
            case "N":
                self.notes.append(entry.data)
            case "w" | "t":
                self.by_inode[entry.inode].pending.append((self.number, entry.at, entry.data if entry.kind == "w" else None))
            case "c":
                self.by_inode[entry.inode] = File()
                self._change("c", entry.path, self.by_inode[entry.inode])
            case "m" | "u":
                self._change(entry.kind, entry.path, None)
            case "r":
                self._change("r", entry.path, entry.data.decode())
            case "S":
                self.syncs[entry.at] = (self.number, self.by_inode[entry.inode])
            case "D":
                self.syncs[entry.at] = (self.number, entry.path)
            case "e":
                self._synced(*self.syncs.pop(entry.at))

    def _change(self, kind: str, path: str, what: File | str | None) -> None:
        apply(self.live, kind, path, what)
        self.pending.append((self.number, kind, path, what))

    def _synced(self, begun: int, what: File | str) -> None:
        if isinstance(what, File):
            what.sync(begun)
            return
        still: list[tuple[int, str, str, File | str | None]] = []
        for number, kind, path, to in self.pending:
            there = what in {parent(path), parent(to) if isinstance(to, str) else None}
            if not (there and number < begun):
                still.append((number, kind, path, to))
                continue
            apply(self.durable, kind, path, to)
            # What was done in a directory before it moved goes with it; what was done in one that is gone is over.
            inside = [change for change in still if change[2].startswith(f"{path}/")]
            still = [change for change in still if change not in inside]
            if kind == "r" and isinstance(to, str):
                still += [(at, how, to + name[len(path) :], rebased(goal, path, to)) for at, how, name, goal in inside]
            elif kind != "u":
                still += inside
            still.sort(key=lambda change: change[0])
        self.pending = still

    def whole(self) -> dict[str, bytes]:
        """The files as programs see them."""
        return {path: file.left(random.Random(), kept=1.0) for path, file in self.live.items() if file is not None}

    def lose_power(self, rng: random.Random, into: Path) -> None:
        """Makes a directory of what is left."""
        kept = rng.choice([0.0, 0.3, 0.7, 0.95, 1.0])
        names = dict(self.durable)
        for _, kind, path, what in self.pending:
            if rng.random() < kept:
                apply(names, kind, path, what)
        into.mkdir()
        for path in sorted(names):
            above = parent(path)
            if above != self.root and not (above in names and names[above] is None):
                continue
            place, file = into / path[len(self.root) + 1 :], names[path]
            if not place.parent.is_dir():
                continue
            if file is None:
                place.mkdir()
            else:
                place.write_bytes(file.left(rng, kept))
