"""`AsyncShareConsumer`."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, Self

from fletchlog._closing import AsyncClosing
from fletchlog._core import ShareConsumer
from fletchlog.aio._cluster import AsyncCluster, blocking
from fletchlog.aio._loop import Calls
from fletchlog.errors import ConcurrentAccessError, InvalidArgumentError, KafkaError
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from datetime import timedelta

    from fletchlog._core import Records
    from fletchlog.configs import ConsumerConfig
    from fletchlog.serde import Deserializer
    from fletchlog.testing import FaultPlan
    from fletchlog.types import Metrics, Record, Source

_OnAcknowledgement = Callable[[TopicPartition, list[int], KafkaError | None], object]
# how long one poll of an iteration waits
_FOREVER_MS = 2**62
_CLOSE_MS = 30_000


class AsyncShareConsumer(AsyncClosing):
    """A `ShareConsumer` for asyncio: what waits is awaited, and neither blocks the event loop nor uses a thread.

        async with AsyncShareConsumer("kafka://localhost:9092", group="billing", topics=["orders"]) as consumer:
            async for record in consumer:
                ...

    One task at a time uses it: while a call is awaited, a call of another task raises `ConcurrentAccessError`. A cancelled poll loses no record:
    the next one returns them. A commit that is cancelled after it was sent may still take effect. A consumer belongs to the loop in which it is
    awaited first.

    A member of a group of a cluster has one more thread, as with `ShareConsumer`: it sends heartbeats between two polls.

    Args:
        source: As for `ShareConsumer`: also an `AsyncCluster`.
        config: As for `ShareConsumer`.
        group: `group.id`.
        topics: What to subscribe to.
        on_acknowledgement: As for `ShareConsumer`; may be a coroutine function. It runs in the task that awaits `poll`, `commit` or `close`. If
            that task is cancelled, what has not been called is called by the next of these.
        faults: As for `ShareConsumer`.
        key_deserializer: As for `ShareConsumer`; called in the event loop.
        value_deserializer: As for `ShareConsumer`; called in the event loop.
    """

    def __init__(
        self,
        source: Source | AsyncCluster | ConsumerConfig | Mapping[str, Any] | None = None,
        config: ConsumerConfig | Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        on_acknowledgement: _OnAcknowledgement | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: Callable[[bytes], Any] | Deserializer | None = None,
        value_deserializer: Callable[[bytes], Any] | Deserializer | None = None,
        **others: Never,
    ) -> None:
        given: dict[str, Any] = {"faults": faults, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        given.update(group=group, topics=topics, on_acknowledgement=on_acknowledgement, **others)
        self._consumer: ShareConsumer[Any, Any] = ShareConsumer(blocking(source), config, **given)
        self._on_acknowledgement = on_acknowledgement
        self._calls = Calls(self._consumer, self._consumer._timed_work())  # noqa: SLF001 - of this package
        # arguments for the callback that it has not received yet
        self._acknowledged: deque[tuple[TopicPartition, list[int], KafkaError | None]] = deque()
        # of a poll that was handed back, what an iteration has not returned yet
        self._left: Iterator[Record] = iter(())

    def subscribe(self, topics: Iterable[str]) -> None:
        """Reads these topics, in place of those before. See `ShareConsumer.subscribe`.

        Raises:
            fletchlog.errors.InvalidArgumentError: The list of topics is empty: await `unsubscribe()`.
        """
        topics = list(topics) if not isinstance(topics, str) else topics
        if not topics:
            raise InvalidArgumentError("subscribe got no topic; to end the subscription, await unsubscribe()")
        self._consumer.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leaves the group. See `ShareConsumer.unsubscribe`."""
        await self._calls.call(self._consumer.unsubscribe)

    def subscription(self) -> list[str]:
        """Subscribed topics."""
        return self._consumer.subscription()

    async def poll(self, timeout_ms: int | timedelta = 1000) -> Records:
        """Returns acquired records; waits at most `timeout_ms` for the first one. See `ShareConsumer.poll`.

        Raises:
            fletchlog.errors.ConcurrentAccessError: Another task awaits a call of this consumer.
        """
        return await self._poll(None, timeout_ms)

    def __aiter__(self) -> Self:
        """`async for record in consumer`: record by record, without an end, as `for record in consumer` does for a `ShareConsumer`."""
        return self

    async def __anext__(self) -> Record:
        """The next record; waits for it without end."""
        while True:
            record = next(self._left, None)
            if record is not None:
                return record
            self._left = iter(await self._poll(1, _FOREVER_MS))

    def acknowledge(
        self,
        records: Record[Any, Any] | Records[Any, Any] | tuple[str, int, int] | list[Record[Any, Any]],
        kind: Literal["accept", "release", "reject", "renew"] = "accept",
    ) -> None:
        """Says what became of a record, of a list of records, or of all of `Records`. Sends nothing. See `ShareConsumer.acknowledge`."""
        self._consumer.acknowledge(records, kind)

    async def commit(self, timeout_ms: int | timedelta | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Sends the acknowledgements; returns None or the error of each partition. See `ShareConsumer.commit`."""
        results, acknowledged = await self._calls.call(self._consumer._commit, timeout_ms)  # noqa: SLF001 - of this package
        self._acknowledged.extend(acknowledged)
        await self._run_callback()
        return results

    def commit_async(self) -> None:
        """As `commit`, without waiting; `on_acknowledgement` receives the results."""
        self._consumer.commit_async()

    @property
    def acquisition_lock_timeout(self) -> int | None:
        """See `ShareConsumer.acquisition_lock_timeout`."""
        return self._consumer.acquisition_lock_timeout

    def metrics(self) -> Metrics:
        """See `ShareConsumer.metrics`."""
        return self._consumer.metrics()

    async def close(self, timeout_ms: int | timedelta = _CLOSE_MS) -> None:
        """Sends what is acknowledged, releases every other record, and leaves the group. Closing twice does nothing.

        A close that is cancelled has closed the consumer: its connections end, and with them its locks.
        """
        try:
            self._acknowledged.extend(await self._calls.call(self._consumer._close, timeout_ms))  # noqa: SLF001 - of this package
        except ConcurrentAccessError:
            raise
        except BaseException:
            self._release()
            raise
        self._release()
        await self._run_callback()

    def _release(self) -> None:
        self._calls.close()
        self._consumer._release()  # noqa: SLF001 - of this package

    def __repr__(self) -> str:
        return repr(self._consumer).replace("fletchlog.ShareConsumer", "fletchlog.AsyncShareConsumer", 1)

    async def _poll(self, most: int | None, timeout_ms: int | timedelta) -> Records:
        """Polls, and runs the callback."""
        await self._run_callback()
        polled, acknowledged = await self._calls.call(self._consumer._poll, most, timeout_ms)  # noqa: SLF001 - of this package
        self._acknowledged.extend(acknowledged)
        try:
            await self._run_callback()
        except BaseException:
            if polled:
                self._consumer._hand_back(polled)  # noqa: SLF001 - of this package
            raise
        return polled

    async def _run_callback(self) -> None:
        while self._acknowledged and self._on_acknowledgement is not None:
            result = self._on_acknowledgement(*self._acknowledged.popleft())
            if inspect.isawaitable(result):
                await result
