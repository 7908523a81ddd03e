"""The topic `_schemas`: records in Confluent's format, one partition, compacted. Its state is what they amount to, in their order."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fletchlog._core import Producer
from fletchlog.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fletchlog.registry.problems import store_failed
from fletchlog.registry.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog import Broker

TOPIC = "_schemas"
# Longest wait for the acknowledgement of a record, s.
LONGEST_WRITE_S = 10
_TEXT = {"separators": (",", ":"), "ensure_ascii": False}

# The registries over one broker write one after the other: id of the broker -> its lock, and how many registries use it.
_LOCKS: dict[int, tuple[threading.RLock, int]] = {}
_TABLE = threading.Lock()


class SchemaLog:
    """The topic of a broker, and its state.

    Each registry has one; those of the same broker take turns, so that each decides on what the others have written.
    """

    def __init__(self, broker: Broker) -> None:
        """Creates the topic, if the broker can be written to.

        Raises:
            fletchlog.errors.KafkaError: It cannot be created, or read.
        """
        self._broker, self._is_open = broker, True
        self._state = State()
        # offset of the next record; None: the first one that exists
        self._next: int | None = None
        self._producer: Any = None
        with _TABLE:
            self._lock, users = _LOCKS.get(id(broker), (threading.RLock(), 0))
            _LOCKS[id(broker)] = (self._lock, users + 1)
        try:
            with self.turn():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends it. Closing twice does nothing."""
        with _TABLE:
            if not self._is_open:
                return
            self._is_open = False
            lock, users = _LOCKS.pop(id(self._broker))
            if users > 1:
                _LOCKS[id(self._broker)] = (lock, users - 1)
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    @contextmanager
    def turn(self) -> Iterator[State]:
        """The state with every record that the topic has, while no other registry of this broker writes."""
        with self._lock:
            if not self._is_open:
                raise store_failed("the registry is closed")
            self._read()
            yield self._state

    def write(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        """Appends a record, waits for its acknowledgement by all replicas in sync, and applies it. In a turn.

        Raises:
            RegistryProblem: It was not acknowledged.
        """
        try:
            if self._producer is None:
                # what is not acknowledged in time is an error of this request
                longest = round(LONGEST_WRITE_S * 1000)
                config: dict[str, Any] = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "delivery.timeout.ms": longest}
                self._producer = Producer(self._broker, config | {"request.timeout.ms": longest, "max.block.ms": longest})
            encoded = None if value is None else json.dumps(value, **_TEXT).encode()  # type: ignore[arg-type] # json's own arguments
            future = self._producer.send(TOPIC, key=json.dumps(key, **_TEXT).encode(), value=encoded, partition=0)  # type: ignore[arg-type] # the same
            future.result(timeout=LONGEST_WRITE_S + 1)
        except (KafkaError, TimeoutError) as error:
            raise store_failed(f"Error while writing to the topic {TOPIC}: {type(error).__name__}: {error}") from error
        self._read()

    def _read(self) -> None:
        """Applies what was appended since."""
        try:
            try:
                end = self._end()
            except UnknownTopicOrPartitionError:
                self._state, self._next = State(), None
                if self._broker.read_only:
                    return
                self._broker.create_topic(TOPIC, config={"cleanup.policy": "compact"}, exist_ok=True)
                end = self._end()
            if self._next is not None and end < self._next:
                # the topic was deleted and made again
                self._state, self._next = State(), None
            if end == self._next:
                return
            try:
                self._apply()
            except OffsetOutOfRangeError:
                # records were deleted: what exists is read from the beginning
                self._state, self._next = State(), None
                self._apply()
        except KafkaError as error:
            raise store_failed(f"Error while reading the topic {TOPIC}: {type(error).__name__}: {error}") from error

    def _end(self) -> int:
        end = self._broker.describe_topic(TOPIC).partitions[0].high_watermark
        if end < 0:
            # the scan says why it cannot be read
            self._broker.scan(TOPIC, 0)
            raise store_failed(f"The topic {TOPIC} could not be read; try again")
        return end

    def _apply(self) -> None:
        for record in self._broker.scan(TOPIC, 0, self._next).records():
            self._state.apply(record.key, record.value, record.timestamp)
            self._next = record.offset + 1
