"""Numbers kept until a whole partition has been read: in memory while they are few, then in files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fletchlog._closing import Closing
from fletchlog.audit.repeats import lanes, ranked

if TYPE_CHECKING:
    from collections.abc import Iterator

LANE_BITS = 6
MEMORY = 32 << 20


class Spool(Closing):
    """Rows of two uint64 numbers that identify a record, and an int64 that belongs to them, for one partition.

    In memory are at most 32 MiB, and a 64th of the different rows while `repeats` looks at them; the rest is in a temporary directory,
    24 bytes a row, until `close`.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Any]] = {}
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Removes the files."""
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, one: Any, two: Any, owner: Any) -> Any:
        """Adds rows; gives the owners of those that repeat another one of them, which are not kept."""
        order, first = ranked(one, two)
        kept = order[first]
        rows = np.stack([one[kept], two[kept], owner[kept].view(np.uint64)])
        for lane, mine in lanes(rows[0], rows[1], LANE_BITS):
            self._kept.setdefault(lane, []).append(rows[:, mine])
        self._bytes += rows.nbytes
        if self._bytes > MEMORY:
            self._write()
        return owner[order[~first]]

    def repeats(self) -> Iterator[Any]:
        """The owners of the kept rows that repeat another one, part by part."""
        for lane in range(1 << LANE_BITS):
            rows = self._read(lane)
            order, first = ranked(rows[0], rows[1])
            yield rows[2][order[~first]].view(np.int64)

    def _write(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fletchlog-audit-")
        for lane, rows in self._kept.items():
            with (Path(self._folder.name) / str(lane)).open("ab") as file:
                file.write(np.concatenate(rows, axis=1).T.tobytes())
        self._kept, self._bytes = {}, 0

    def _read(self, lane: int) -> Any:
        rows = self._kept.get(lane, [])
        path = Path(self._folder.name) / str(lane) if self._folder is not None else None
        if path is not None and path.is_file():
            rows = [np.fromfile(path, np.uint64).reshape(-1, 3).T, *rows]
        return np.concatenate(rows, axis=1) if rows else np.empty((3, 0), np.uint64)
