"""Requests, fetches and batches of a session as columns: numbers for numpy, and rows (`rows.py`) of those that somebody reads one by one.

A column has a value for each row. Times are us since 1970. Partitions, texts and APIs are numbers; `NONE` is no value.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from fletchlog.explain.session.rows import Fetched, Got, Lane, Line, Produced
from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array: TypeAlias = Any
"""A numpy array of 64-bit integers, or of bools."""
Tables: TypeAlias = dict[str, Any]
_Row = TypeVar("_Row")
NONE = -(2**63)
# rows that are made together when all are read
_TOGETHER = 10_000
# columns whose values differ by less are counted without sorting them
_DENSE = 1 << 23
_PRIME = 0x9E3779B97F4A7C15


class _Numpy:
    """numpy, imported when it is used: a package without it has the rest of `fletchlog.explain`."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(require("numpy", "cli"), name)
        setattr(self, name, found)
        return found


np: Any = _Numpy()


class Rows(Generic[_Row]):
    """A table whose rows are made when they are read."""

    def __len__(self) -> int:
        raise NotImplementedError

    def rows(self, at: Array) -> list[_Row]:
        """The rows at these places, or in this slice."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[_Row]:
        """All rows, some at a time."""
        return chain.from_iterable(self.rows(slice(at, at + _TOGETHER)) for at in range(0, len(self), _TOGETHER))

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[_Row]: ...
    def __getitem__(self, at: int | slice) -> _Row | list[_Row]:
        """A row, or those of a slice."""
        return self.rows(at) if isinstance(at, slice) else self.rows(np.array([range(len(self))[at]]))[0]


class _Named:
    """What columns refer to by number."""

    def __init__(self, tables: Tables) -> None:
        texts = tables["texts"]
        self.texts: list[str] = texts
        self.lanes = [Lane(texts[topic], partition) for topic, partition in tables["lanes"]]
        self.number_of = {lane: number for number, lane in enumerate(self.lanes)}
        self.wanted: list[list[int]] = tables["wanted"]

    def text(self, numbers: Array) -> list[Any]:
        """Texts; None without one."""
        texts = self.texts
        return [None if number == NONE else texts[number] for number in numbers.tolist()]


class Lines(Rows[Line]):
    """All requests in the order of arrival; `api` is a number of `apis`."""

    number: Array
    connection: Array
    client_id: Array
    api_key: Array
    version: Array
    arrived_us: Array
    answered_us: Array
    request_bytes: Array
    response_bytes: Array
    outcome: Array
    fault: Array

    def __init__(self, tables: Tables, name_of: Callable[[int], str]) -> None:
        """Of all requests; `name_of` has the name of the API of a request, by its place."""
        self.named = _Named(tables)
        _set(self, tables["lines"])
        first, _, self.api = distinct(self.api_key)
        self.apis = [name_of(place) for place in first.tolist()]
        self.client: Array = np.zeros(len(self.number), np.int64)

    @classmethod
    def of(cls, rows: Sequence[Line]) -> Lines:
        """Of rows."""
        texts = list(dict.fromkeys(text for row in rows for text in (row.outcome, row.fault) if text is not None))
        apis = list(dict.fromkeys(row.api for row in rows))
        numbers = {text: number for number, text in enumerate(texts)}
        keys = {api: key for key, api in enumerate(apis)}
        values: dict[str, list[int]] = {
            name: [NONE if (value := getattr(row, name)) is None else value for row in rows]
            for name in ("number", "connection", "version", "arrived_us", "answered_us", "request_bytes", "response_bytes")
        }
        values |= {"api_key": [keys[row.api] for row in rows], "outcome": [numbers[row.outcome] for row in rows], "client_id": [NONE] * len(rows)}
        values["fault"] = [NONE if row.fault is None else numbers[row.fault] for row in rows]
        columns = {name: np.array(column, np.int64).tobytes() for name, column in values.items()}
        lines = cls({"texts": texts, "lanes": [], "wanted": [], "lines": columns}, lambda place: rows[place].api)
        lines.client = np.array([row.client for row in rows], np.int64)
        return lines

    def __len__(self) -> int:
        """How many."""
        return len(self.number)

    def rows(self, at: Array) -> list[Line]:
        """The requests at these places, or in this slice."""
        return list(map(Line._make, zip(*self.values(at), strict=True)))

    def values(self, at: Array) -> tuple[list[Any], ...]:
        """The same by column, as a `Line` has them."""
        apis, text = self.apis, self.named.text
        return (
            self.number[at].tolist(), self.client[at].tolist(), self.connection[at].tolist(), [apis[api] for api in self.api[at].tolist()],
            self.version[at].tolist(), self.arrived_us[at].tolist(), optional(self.answered_us[at]), self.request_bytes[at].tolist(),
            optional(self.response_bytes[at]), text(self.outcome[at]), text(self.fault[at]),
        )  # fmt: skip

    def are(self, *apis: str) -> Array:
        """Which are of these APIs."""
        return np.isin(self.api, [number for number, api in enumerate(self.apis) if api in apis])

    def at(self, number: int) -> int:
        """The place of the request with this number, which there is."""
        return int(np.searchsorted(self.number, number))


class _OfLines:
    """Rows that belong to requests: what is known of these."""

    place: Array

    def __init__(self, lines: Lines, columns: dict[str, bytes], error: Callable[[int], str | None]) -> None:
        """Of these requests; `error` has the name of an error code."""
        self.lines, self.names, self.error_name = lines, lines.named, error
        _set(self, columns)
        place = self.place
        self.number, self.connection = lines.number[place], lines.connection[place]
        self.arrived_us, self.answered_us = lines.arrived_us[place], lines.answered_us[place]
        self.at_us = np.where(self.answered_us > 0, self.answered_us, self.arrived_us)
        """When the response was ready, or else the request had arrived."""
        self.client: Array = lines.client[place]
        self._of: dict[int, Array] | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.place)

    def clients(self) -> list[int]:
        """Their clients, in the order of their first rows."""
        found: list[int] = self.client[distinct(self.client)[0]].tolist()
        return found

    def of(self, client: int) -> Array:
        """The rows of a client, in the order of arrival."""
        if self._of is None:
            self._of = dict(split(self.client))
        return self._of.get(client, self.place[:0])

    def clients_changed(self) -> None:
        """Takes the numbers of clients from the requests again."""
        self.client, self._of = self.lines.client[self.place], None


class Partitions:
    """Partitions of fetches: what was named, or what a response has; `fetch` is the row of the fetch."""

    fetch: Array
    lane: Array

    def __init__(self, columns: dict[str, bytes], first: Array) -> None:
        """With the first row of each fetch."""
        _set(self, columns)
        self.bounds = np.append(first, len(self.lane))
        self.fetch = np.repeat(np.arange(len(first)), np.diff(self.bounds))

    def of(self, fetches: Array) -> Array:
        """The rows of these fetches, in their order."""
        begin, count = self.bounds[fetches], self.bounds[fetches + 1] - self.bounds[fetches]
        return np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(count.sum())


class Named(Partitions):
    """What fetches name."""

    offset: Array


class Gots(Partitions):
    """What responses have."""

    asked: Array
    error: Array
    high_watermark: Array
    last_stable: Array
    log_start: Array
    first: Array
    last: Array
    records: Array
    size: Array
    transactional: Array
    aborted: Array

    def position(self, at: Array) -> Array:
        """The offset behind what arrived, or else the one that was asked for."""
        return np.where(self.records[at] != 0, self.last[at] + 1, self.asked[at])


class Fetches(_OfLines, Rows[Fetched]):
    """Fetches in the order of arrival; `wanted` is a number of the partitions that its fetch session has."""

    wanted: Array
    max_wait_ms: Array
    min_bytes: Array
    max_bytes: Array
    partition_max_bytes: Array
    isolation: Array
    size: Array

    def __init__(self, lines: Lines, tables: Tables, error: Callable[[int], str | None]) -> None:
        """Of these requests; `error` has the name of an error code."""
        columns = dict(tables["fetches"])
        named, got = column(columns.pop("named")), column(columns.pop("got"))
        super().__init__(lines, columns, error)
        self.named, self.got = Named(tables["named"], named), Gots(tables["got"], got)
        self._sets: dict[int, dict[Lane, None]] = {}

    def wants(self, number: int) -> dict[Lane, None]:
        """The partitions of a fetch session by their number: fetches share them."""
        if number not in self._sets:
            lanes = self.names.lanes
            self._sets[number] = {lanes[lane]: None for lane in self.names.wanted[number]}
        return self._sets[number]

    def rows(self, at: Array) -> list[Fetched]:
        """The fetches at these places, or in this slice."""
        at = np.arange(len(self))[at]
        lanes, named, got = self.names.lanes, self.named, self.got
        columns = (
            self.number, self.client, self.connection, self.arrived_us, self.answered_us, self.wanted, self.max_wait_ms, self.min_bytes, self.max_bytes,
            self.partition_max_bytes, self.isolation, self.size, named.bounds[:-1], named.bounds[1:], got.bounds[:-1], got.bounds[1:],
        )  # fmt: skip
        return [
            Fetched(
                number, client, connection, arrived, None if answered == NONE else answered,
                {lanes[lane]: offset for lane, offset in zip(named.lane[n:n_end].tolist(), named.offset[n:n_end].tolist(), strict=True)},
                self.wants(wanted), wait, least, most, limit, isolation, self._got(slice(g, g_end)), size,
            )
            for number, client, connection, arrived, answered, wanted, wait, least, most, limit, isolation, size, n, n_end, g, g_end in zip(
                *(column[at].tolist() for column in columns), strict=True
            )
        ]  # fmt: skip

    def _got(self, at: slice) -> list[Got]:
        got, lanes, error = self.got, self.names.lanes, self.error_name
        columns = (
            got.lane, got.asked, got.error, got.high_watermark, got.last_stable, got.log_start, got.first, got.last, got.records, got.size, got.transactional,
            got.aborted,
        )  # fmt: skip
        return [
            Got._make((lanes[lane], asked, error(code), *rest, bool(transactional), aborted))
            for lane, asked, code, *rest, transactional, aborted in zip(*(column[at].tolist() for column in columns), strict=True)
        ]


class Batches(_OfLines, Rows[Produced]):
    """Batches of Produce requests, in the order of arrival."""

    lane: Array
    records: Array
    size: Array
    producer_id: Array
    producer_epoch: Array
    sequence: Array
    first_timestamp: Array
    max_timestamp: Array
    codec: Array
    transactional: Array
    acks: Array
    transactional_id: Array
    error: Array
    base_offset: Array

    def __init__(self, lines: Lines, tables: Tables, error: Callable[[int], str | None]) -> None:
        """Of these requests; `error` has the name of an error code."""
        super().__init__(lines, tables["batches"], error)

    def lanes_of(self, at: Array) -> list[Lane]:
        """The partitions of batches, each once, in their order."""
        lanes = self.lane[at]
        return [self.names.lanes[lane] for lane in lanes[distinct(lanes)[0]].tolist()]

    def rows(self, at: Array) -> list[Produced]:
        """The batches at these places, or in this slice."""
        lanes, error, names = self.names.lanes, self.error_name, self.names
        columns = (
            self.number[at].tolist(), self.client[at].tolist(), self.connection[at].tolist(), self.arrived_us[at].tolist(), optional(self.answered_us[at]),
            [lanes[lane] for lane in self.lane[at].tolist()], self.records[at].tolist(), self.size[at].tolist(), self.producer_id[at].tolist(),
            self.producer_epoch[at].tolist(), self.sequence[at].tolist(), self.first_timestamp[at].tolist(), self.max_timestamp[at].tolist(),
            names.text(self.codec[at]), [bool(value) for value in self.transactional[at].tolist()], self.acks[at].tolist(),
            names.text(self.transactional_id[at]), [error(code) for code in self.error[at].tolist()], optional(self.base_offset[at]),
            names.text(self.lines.outcome[self.place[at]]),
        )  # fmt: skip
        return list(map(Produced._make, zip(*columns, strict=True)))


def column(values: bytes) -> Array:
    """A column of a table."""
    return np.frombuffer(values, np.int64)


def _set(table: Any, columns: dict[str, bytes]) -> None:
    for name, values in columns.items():
        setattr(table, name, column(values))


def optional(values: Array) -> list[int | None]:
    """Values; None without one."""
    return [None if value == NONE else value for value in values.tolist()]


def _codes(column: Array) -> tuple[Array, int]:
    """Small numbers in place of values, in the order of these, and how many there are."""
    low, high = int(column.min()), int(column.max())
    if high - low >= _DENSE:
        values, codes = np.unique(column, return_inverse=True)
        return codes, len(values)
    is_there = np.zeros(high - low + 1, bool)
    is_there[column - low] = True
    codes = np.cumsum(is_there) - 1
    return codes[column - low], int(codes[-1]) + 1


def distinct(*columns: Array) -> tuple[Array, Array, Array]:
    """Rows that are equal in all columns: the first row of each kind, in their order; how many there are of each; and of each row the number of its kind."""
    rows = len(columns[0])
    if not rows:
        return (np.zeros(0, np.int64),) * 3
    kinds, count = _codes(columns[0])
    for column in columns[1:]:
        codes, several = _codes(column)
        kinds, count = _codes(kinds * several + codes)
    first = np.empty(count, np.int64)
    # of several values for one place the last remains
    first[kinds[::-1]] = np.arange(rows)[::-1]
    order = np.argsort(first)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    kinds = rank[kinds]
    return first[order], np.bincount(kinds), kinds


def split(column: Array) -> Iterator[tuple[int, Array]]:
    """The rows of each value, in their order."""
    if not len(column):
        return
    codes, count = _codes(column)
    order = np.argsort(codes.astype(np.uint16) if count < 1 << 16 else codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, bounds):
        yield int(column[rows[0]]), rows


def mixed(*columns: Array) -> Array:
    """A number for each row: equal rows have equal ones."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) * np.uint64(_PRIME)
        found ^= found >> np.uint64(29)
    return found


def among(values: Array, others: Array) -> Array:
    """The places of those values that are among others, which are few."""
    others = np.unique(others)
    if not len(others):
        return np.zeros(0, np.int64)
    at = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return np.flatnonzero(others[at] == values)


def repeated(values: Array, times: int) -> Array:
    """The places of values that occur as often, or more often."""
    ordered = np.sort(values)
    return among(values, ordered[times - 1 :][ordered[times - 1 :] == ordered[: max(len(ordered) - times + 1, 0)]])
