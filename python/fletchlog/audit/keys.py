"""The findings per key of a topic, kept as columns: some 300 bytes and the key itself for each different key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fletchlog.audit.order import NO_TIME
from fletchlog.audit.report import KeyAudit

if TYPE_CHECKING:
    import pyarrow as pa

NO_KEY = -1
_COLUMNS = ("records", "partitions", "repeated", "inverted", "furthest", "last_ms", "last_partition")


class Keys:
    """The keys of one topic, by number."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self._columns = {name: np.zeros(1024, np.int64) for name in _COLUMNS}
        self._columns["last_partition"] -= 1

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return self._columns[name]
        raise AttributeError(name)

    def add(self, keys: pa.Array, ms: Any, partition: int) -> tuple[Any, int]:
        """The next records of a partition; partitions are added one after the other.

        Returns: The number of each record's key, `NO_KEY` without one, and how many keys are new in this partition.
        """
        encoded = keys.dictionary_encode()
        known = np.array([self.numbers.setdefault(key, len(self.numbers)) for key in encoded.dictionary.to_pylist()] or [NO_KEY], np.int64)
        self._grow(len(self.numbers))
        indices = encoded.indices.fill_null(0).to_numpy()
        number = np.where(keys.is_valid().to_numpy(zero_copy_only=False), known[indices], NO_KEY)
        keyed = np.flatnonzero(number != NO_KEY)
        if not len(keyed):
            return number, 0
        order = keyed[np.argsort(number[keyed], kind="stable")]
        return number, self._follow(number[order], ms[order], partition)

    def _follow(self, number: Any, ms: Any, partition: int) -> int:
        """Records sorted by key, in the order of their offsets within each."""
        first = np.concatenate([[True], number[1:] != number[:-1]])
        last = np.concatenate([first[1:], [True]])
        mine = number[first]
        fresh = mine[self.last_partition[mine] != partition]
        self.partitions[fresh] += 1
        self.last_partition[fresh] = partition
        self.last_ms[fresh] = NO_TIME
        before = np.concatenate([[NO_TIME], ms[:-1]])
        before[first] = self.last_ms[mine]
        back = (ms < before) & (ms != NO_TIME)
        np.add.at(self.inverted, number[back], 1)
        np.maximum.at(self.furthest, number[back], before[back] - ms[back])
        self.records[mine] += np.diff(np.concatenate([np.flatnonzero(first), [len(number)]]))
        self.last_ms[mine] = ms[last]
        return len(fresh)

    def repeat(self, owners: Any) -> None:
        """Records with the value of an earlier one of their key."""
        np.add.at(self.repeated, owners[owners != NO_KEY], 1)

    def spread(self) -> int:
        """Keys that are in more than one partition."""
        return int(np.count_nonzero(self.partitions > 1))

    def worst(self, topic: str, most: int) -> list[KeyAudit]:
        """Those with the most findings: in several partitions, inverted, repeated."""
        bad = np.flatnonzero((self.partitions > 1) | (self.repeated + self.inverted > 0))
        order = bad[np.lexsort([-self._columns[name][bad] for name in ("records", "repeated", "inverted", "partitions")])]
        # among equals the key decides; there are few names to look up
        names = self._names(set(order[: self._tied(order, most)].tolist()))
        found = [
            KeyAudit(
                topic, key, int(self.records[n]), int(self.partitions[n]), int(self.repeated[n]), int(self.inverted[n]),
                int(self.furthest[n]) if self.inverted[n] else None,
            )
            for n, key in names.items()
        ]  # fmt: skip
        return sorted(found, key=lambda k: (-k.partitions, -k.timestamp_inversions, -k.duplicate_records, -k.records, k.key))[:most]

    def _tied(self, order: Any, most: int) -> int:
        """How many keys are at least as bad as the last that is listed."""
        if most >= len(order) or most == 0:
            return min(most, len(order))
        ranks = np.stack([self._columns[name][order] for name in ("partitions", "inverted", "repeated", "records")])
        same = (ranks == ranks[:, most - 1 : most]).all(axis=0)
        return int(np.flatnonzero(same)[-1]) + 1

    def _names(self, numbers: set[int]) -> dict[int, bytes]:
        return {number: key for key, number in self.numbers.items() if number in numbers}

    def _grow(self, size: int) -> None:
        have = len(self.records)
        if size > have:
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.full(max(size, 2 * have) - have, -1 if name == "last_partition" else 0, np.int64)])
