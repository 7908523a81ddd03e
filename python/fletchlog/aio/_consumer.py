"""`AsyncConsumer`."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Never, Self, overload

from fletchlog._closing import AsyncClosing
from fletchlog._core import Consumer
from fletchlog.aio._cluster import AsyncCluster, blocking
from fletchlog.aio._loop import Calls
from fletchlog.errors import ConcurrentAccessError, InvalidArgumentError
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from fletchlog._core import Records
    from fletchlog.configs import ConsumerConfig
    from fletchlog.explain import Explanation
    from fletchlog.serde import Deserializer
    from fletchlog.testing import FaultPlan
    from fletchlog.types import ConsumerGroupMetadata, Metrics, OffsetAndMetadata, OffsetAndTimestamp, Record, Source, Table

_Partition = TopicPartition | tuple[str, int]
_Listener = Callable[[list[TopicPartition]], object]
# how long one poll of an iteration waits
_FOREVER_MS = 2**62
_CLOSE_MS = 30_000


class AsyncConsumer(AsyncClosing):
    """A `Consumer` for asyncio: what waits is awaited, and neither blocks the event loop nor uses a thread.

        async with AsyncConsumer("kafka://localhost:9092", {"group.id": "billing"}) as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    It polls in the same order as `Consumer`, and takes the same arguments. One task at a time uses it: while a call is awaited, a call of
    another task raises `ConcurrentAccessError`. A cancelled call, also one whose `asyncio.timeout` is over, moves no position: the next
    poll returns what the cancelled one would have returned. A consumer belongs to the loop in which it is awaited first.

    A member of a group of a cluster has one more thread, as with `Consumer`: it sends heartbeats between two polls.

    Args:
        source: As for `Consumer`: a `Broker`, a cluster (`"kafka://host:9092"`, an `AsyncCluster`), a directory, or the configuration alone.
        config: As for `Consumer`.
        group: `group.id`.
        topics: What to subscribe to.
        faults: What is to go wrong, for tests: a `fletchlog.testing.FaultPlan`.
        key_deserializer: As for `Consumer`; called in the event loop.
        value_deserializer: As for `Consumer`; called in the event loop.
    """

    def __init__(
        self,
        source: Source | AsyncCluster | ConsumerConfig | Mapping[str, Any] | None = None,
        config: ConsumerConfig | Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: Callable[[bytes], Any] | Deserializer | None = None,
        value_deserializer: Callable[[bytes], Any] | Deserializer | None = None,
        **others: Never,
    ) -> None:
        given: dict[str, Any] = {"faults": faults, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        given.update(group=group, topics=topics, **others)
        self._consumer: Consumer[Any, Any] = Consumer(blocking(source), config, **given)
        self._calls = Calls(self._consumer, self._consumer._timed_work())  # noqa: SLF001 - of this package
        # rebalance callbacks that have not run yet
        self._callbacks: deque[tuple[_Listener, list[TopicPartition]]] = deque()
        # of a poll that was handed back, what an iteration has not returned yet
        self._left: Iterator[Record] = iter(())
        self._is_in_poll = False

    async def poll(self, timeout_ms: int | timedelta = 1000) -> Records:
        """Returns up to `max.poll.records` records; waits at most `timeout_ms` if there are none. See `Consumer.poll`.

        Raises:
            fletchlog.errors.ConcurrentAccessError: Another task awaits a call of this consumer.
        """
        return await self._poll(None, timeout_ms)

    def __aiter__(self) -> Self:
        """`async for record in consumer`: record by record, without an end, as `for record in consumer` does for a `Consumer`.

        Positions move, and commits reach, only over what was handed out.
        """
        return self

    async def __anext__(self) -> Record:
        """The next record; waits for it without end."""
        while True:
            record = next(self._left, None)
            if record is not None:
                return record
            self._left = iter(await self._poll(1, _FOREVER_MS))

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        on_assigned: _Listener | None = None,
        on_revoked: _Listener | None = None,
        on_lost: _Listener | None = None,
    ) -> None:
        """Joins the group with these topics, or with every topic whose name matches `pattern`. See `Consumer.subscribe`.

        The callbacks may be coroutine functions. They run inside `poll`, `unsubscribe` and `close`, in the task that awaits these, and may use
        this consumer. If that task is cancelled, the callbacks that have not begun run in the next poll.

        Raises:
            fletchlog.errors.InvalidArgumentError: The list of topics is empty: await `unsubscribe()`.
        """
        if topics is not None:
            topics = list(topics) if not isinstance(topics, str) else topics
            if not topics:
                raise InvalidArgumentError("subscribe got no topic; to end the subscription, await unsubscribe()")
        self._consumer.subscribe(topics, pattern=pattern, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)

    async def unsubscribe(self) -> None:
        """Leaves the subscription or assignment."""
        self._callbacks.extend(self._consumer._begin_unsubscribe())  # noqa: SLF001 - of this package
        try:
            await self._run_callbacks()
        finally:
            self._consumer._end_unsubscribe()  # noqa: SLF001 - of this package

    def assign(self, partitions: Iterable[_Partition]) -> None:
        """Takes exactly these partitions, without a group's help."""
        self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Assigned partitions, in the order that decides requests."""
        return self._consumer.assignment()

    def subscription(self) -> list[str]:
        """Subscribed topics."""
        return self._consumer.subscription()

    def seek(self, partition: _Partition, offset: int | OffsetAndMetadata) -> None:
        """The next poll of this partition starts at `offset`. A time has to be looked up first: await `offsets_for_times`."""
        if isinstance(offset, datetime):
            raise InvalidArgumentError("seek takes an offset; look the time up first: await offsets_for_times({partition: time})")
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[_Partition] | None = None) -> None:
        """To the log start, when next polled; None: all assigned partitions."""
        self._consumer.seek_to_beginning(partitions)

    def seek_to_end(self, partitions: Iterable[_Partition] | None = None) -> None:
        """To the log end, when next polled; None: all assigned partitions."""
        self._consumer.seek_to_end(partitions)

    def pause(self, partitions: Iterable[_Partition] | _Partition) -> None:
        """Returns and fetches nothing more of these partitions; what is buffered is kept."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[_Partition] | _Partition) -> None:
        """Ends a pause."""
        self._consumer.resume(partitions)

    def paused(self) -> list[TopicPartition]:
        """Paused partitions."""
        return self._consumer.paused()

    async def position(self, partition: _Partition, timeout_ms: int | timedelta | None = None) -> int:
        """Offset of the next record to be returned. See `Consumer.position`."""
        return await self._calls.call(self._consumer.position, partition, timeout_ms)

    async def commit(
        self,
        offsets: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | timedelta | None = None,
    ) -> None:
        """Commits the positions of all partitions, or exactly `offsets`. See `Consumer.commit`.

        A commit that is cancelled after it was sent may still take effect.
        """
        await self._calls.call(self._consumer.commit, offsets, timeout_ms)

    @overload
    async def committed(self, partitions: _Partition, timeout_ms: int | timedelta | None = None) -> OffsetAndMetadata | None: ...
    @overload
    async def committed(
        self, partitions: Iterable[_Partition], timeout_ms: int | timedelta | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...
    async def committed(
        self, partitions: Any, timeout_ms: int | timedelta | None = None
    ) -> OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Committed offsets of the group: of one partition, or a dict for several."""
        committed: Callable[..., OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None] = self._consumer.committed
        return await self._calls.call(committed, partitions, timeout_ms)

    async def beginning_offsets(self, partitions: Iterable[_Partition] | _Partition, timeout_ms: int | timedelta | None = None) -> dict[TopicPartition, int]:
        """Log start offsets."""
        return await self._calls.call(self._consumer.beginning_offsets, partitions, timeout_ms)

    async def end_offsets(self, partitions: Iterable[_Partition] | _Partition, timeout_ms: int | timedelta | None = None) -> dict[TopicPartition, int]:
        """End offsets for this consumer's isolation level."""
        return await self._calls.call(self._consumer.end_offsets, partitions, timeout_ms)

    async def offsets_for_times(
        self,
        times: Mapping[_Partition, int | datetime] | Mapping[TopicPartition, int | datetime],
        timeout_ms: int | timedelta | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the lowest offset whose timestamp is at or after the time, None if there is none."""
        return await self._calls.call(self._consumer.offsets_for_times, times, timeout_ms)

    @property
    def late_records(self) -> int:
        """See `Consumer.late_records`."""
        return self._consumer.late_records

    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """What `AsyncProducer.send_offsets_to_transaction` needs to know of this consumer; None without `group.id`."""
        return self._consumer.group_metadata()

    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end of its log, as last heard with a fetch."""
        return self._consumer.lag()

    def metrics(self) -> Metrics:
        """See `Consumer.metrics`."""
        return self._consumer.metrics()

    def trace(self) -> Table:
        """See `Consumer.trace`."""
        return self._consumer.trace()

    def explain(self) -> Explanation:
        """See `Consumer.explain`."""
        return self._consumer.explain()

    async def close(self, timeout_ms: int | timedelta = _CLOSE_MS) -> None:
        """Commits if `enable.auto.commit`, leaves the group and closes. Closing twice does nothing.

        A close that is cancelled has closed the consumer, but may not have committed, nor left the group: the group notices that after
        `session.timeout.ms`.
        """
        try:
            callbacks = await self._calls.call(self._consumer._begin_close, timeout_ms)  # noqa: SLF001 - of this package
            self._callbacks.extend(callbacks)
            await self._run_callbacks()
        except ConcurrentAccessError:
            raise
        except BaseException:
            await self._end_close(0)
            raise
        await self._end_close(timeout_ms)

    async def _end_close(self, timeout_ms: int | timedelta) -> None:
        try:
            await self._calls.begin(self._consumer._end_close, timeout_ms)  # noqa: SLF001 - of this package
        finally:
            self._calls.close()
            self._consumer._release()  # noqa: SLF001 - of this package

    def __repr__(self) -> str:
        return repr(self._consumer).replace("fletchlog.Consumer", "fletchlog.AsyncConsumer", 1)

    async def _poll(self, most: int | None, timeout_ms: int | timedelta) -> Records:
        """Polls and runs the rebalance callbacks."""
        if self._is_in_poll:
            raise ConcurrentAccessError(
                "another task is inside a poll of this consumer, or this is one of its rebalance callbacks; nothing has changed. "
                "Give each task its own consumer"
            )
        self._is_in_poll = True
        try:
            await self._run_callbacks()
            deadline = None
            while True:
                polled, callbacks = await self._calls.call(self._consumer._poll, most, timeout_ms)  # noqa: SLF001 - of this package
                if not callbacks:
                    return polled
                left_ms = timeout_ms // timedelta(milliseconds=1) if isinstance(timeout_ms, timedelta) else timeout_ms
                deadline = deadline or time.monotonic() + left_ms / 1000
                self._callbacks.extend(callbacks)
                try:
                    await self._run_callbacks()
                except BaseException:
                    if polled:
                        self._consumer._hand_back(polled)  # noqa: SLF001 - of this package
                    raise
                # the engine returns for a rebalance before it has read from the new partitions
                if polled or left_ms == 0:
                    return polled
                timeout_ms = max(0, int((deadline - time.monotonic()) * 1000))
        finally:
            self._is_in_poll = False

    async def _run_callbacks(self) -> None:
        while self._callbacks:
            callback, partitions = self._callbacks.popleft()
            result = callback(partitions)
            if inspect.isawaitable(result):
                await result
