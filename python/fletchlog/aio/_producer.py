"""`AsyncProducer`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

from fletchlog._closing import AsyncClosing
from fletchlog._core import Producer, RecordFuture, _ArrowRows
from fletchlog.aio._cluster import AsyncCluster, blocking
from fletchlog.aio._loop import Calls

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from fletchlog.configs import ProducerConfig
    from fletchlog.testing import FaultPlan
    from fletchlog.types import ConsumerGroupMetadata, Metrics, OffsetAndMetadata, RecordMetadata, Source, Table, TopicPartition

_Bytes = bytes | bytearray | memoryview
_Headers = Sequence[tuple[str, _Bytes | None]] | Mapping[str, _Bytes | None]


class AsyncProducer(AsyncClosing):
    """A `Producer` for asyncio: what waits is awaited and never blocks the event loop.

        async with AsyncProducer("kafka://localhost:9092") as producer:
            future = await producer.send("orders", value=b"v")  # queued
            metadata = await future  # written
            metadata = await producer.send_and_wait("orders", value=b"v")  # both

    It takes the arguments of `Producer`, batches as it does, and has its sender thread. Any number of tasks of one loop may use it. A cancelled
    call, also one whose `asyncio.timeout` is over, leaves it as Ctrl-C leaves a `Producer`: what was queued is sent.

    Args:
        source: As for `Producer`: a `Broker`, a cluster (`"kafka://host:9092"`, an `AsyncCluster`), a directory, or the configuration alone.
        config: As for `Producer`.
        faults: What is to go wrong, for tests: a `fletchlog.testing.FaultPlan`.
        key_serializer: Makes bytes of each key. It runs in the event loop.
        value_serializer: Makes bytes of each value. It runs in the event loop.
    """

    def __init__(
        self,
        source: Source | AsyncCluster | ProducerConfig | Mapping[str, Any] | None = None,
        config: ProducerConfig | Mapping[str, Any] | None = None,
        *,
        faults: FaultPlan | None = None,
        key_serializer: Callable[[Any], _Bytes | None] | None = None,
        value_serializer: Callable[[Any], _Bytes | None] | None = None,
        **others: Never,
    ) -> None:
        given: dict[str, Any] = {"faults": faults, "key_serializer": key_serializer, "value_serializer": value_serializer}
        self._producer: Producer[Any, Any] = Producer(blocking(source), config, **given, **others)
        self._calls = Calls(self._producer)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: _Headers | None = None,
    ) -> RecordFuture:
        """Queues a record and returns its outcome, to be awaited.

        It waits for the metadata of a new topic, and while `buffer.memory` is full, at most `max.block.ms`: so a task that sends faster than the
        broker writes is slowed down, and memory stays bounded. Otherwise it returns without giving other tasks a turn. The record of a cancelled
        `send` is not queued.

        Raises:
            fletchlog.errors.KafkaError: As for `Producer.send`. What `Producer.send` reports through the future is reported there, too.
        """
        sent = self._producer._send_now(topic, value, key, partition, timestamp_ms, headers)  # noqa: SLF001 - of this package
        if isinstance(sent, RecordFuture):
            return sent
        return await self._calls.call(self._producer._send_unsent, sent)  # noqa: SLF001 - of this package

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: _Headers | None = None,
    ) -> RecordMetadata:
        """Queues a record and waits until it is written. A wait that is cancelled does not take back a record that was queued."""
        return await (await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers))

    async def send_many(self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None = None, *, partition: int | None = None) -> int:
        """Queues a record for each value, in order; returns how many. See `Producer.send_many`.

        It waits for memory as `send` does, and gives other tasks a turn after some 10 ms. Their failures are raised by `flush`.
        """
        sent = 0
        rows, row_keys = _iterator("values", values), None if keys is None else _iterator("keys", keys)
        while True:
            sent, is_all, unsent = self._producer._send_rows(topic, rows, row_keys, partition, sent)  # noqa: SLF001 - of this package
            if is_all:
                return sent
            if unsent is None:
                await asyncio.sleep(0)
            else:
                await self._calls.call(self._producer._send_row, unsent, sent)  # noqa: SLF001 - of this package
                sent += 1

    async def send_arrow(self, topic: str, data: Any) -> int:
        """Queues a record for each row of Arrow data; returns how many. See `Producer.send_arrow`.

        A reader of batches (a file, say) is read in the event loop, batch by batch.
        """
        sent, batches = 0, _ArrowRows(data)
        while batches.next():
            sent += await self._calls.call(self._producer._send_batch, topic, batches, sent)  # noqa: SLF001 - of this package
            await asyncio.sleep(0)
        return sent

    async def flush(self, timeout: float | timedelta | None = None, *, timeout_ms: int | timedelta | None = None) -> None:
        """Waits until everything that was queued is written or has failed, at most for `timeout` seconds. See `Producer.flush`."""
        await self._calls.call(functools.partial(self._producer.flush, timeout, timeout_ms=timeout_ms))

    async def init_transactions(self) -> None:
        """Registers the `transactional.id`, once, before the first transaction. See `Producer.init_transactions`."""
        await self._calls.call(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Opens a transaction; nothing is sent yet."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """Adds offsets of a group to the transaction. See `Producer.send_offsets_to_transaction`."""
        await self._calls.call(self._producer.send_offsets_to_transaction, offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Sends everything queued, waits until it is written, and commits. See `Producer.commit_transaction`."""
        await self._calls.call(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Drops what was not sent yet and aborts. See `Producer.abort_transaction`."""
        await self._calls.call(self._producer.abort_transaction)

    def transaction(self) -> AsyncTransaction:
        """`async with producer.transaction():` begins a transaction, and commits it at the end of the block, or aborts it after an exception."""
        return AsyncTransaction(self)

    async def partitions_for(self, topic: str) -> int:
        """Number of partitions of a topic. See `Producer.partitions_for`."""
        return await self._calls.call(self._producer.partitions_for, topic)

    @property
    def producer_id(self) -> tuple[int, int] | None:
        """See `Producer.producer_id`."""
        return self._producer.producer_id

    def metrics(self) -> Metrics:
        """See `Producer.metrics`."""
        return self._producer.metrics()

    def trace(self) -> Table:
        """See `Producer.trace`."""
        return self._producer.trace()

    async def close(self, timeout_ms: int | timedelta | None = None) -> None:
        """Sends everything queued, ends an open transaction and stops. Closing twice does nothing. See `Producer.close`.

        A close that is cancelled goes on in the producer's thread; await it again to wait for its end.
        """
        await self._calls.call(self._producer.close, timeout_ms)
        self._calls.close()

    def __repr__(self) -> str:
        return repr(self._producer).replace("fletchlog.Producer", "fletchlog.AsyncProducer", 1)

    async def _end_block(self, *, commits: bool) -> None:
        end = self._producer._commit_if_open if commits else self._producer._abort_if_open  # noqa: SLF001 - of this package
        await self._calls.call(end)


class AsyncTransaction:
    """The context of `AsyncProducer.transaction`."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> AsyncProducer:
        self._producer.begin_transaction()
        return self._producer

    async def __aexit__(self, _class: object, exception: BaseException | None, _traceback: object) -> None:
        if exception is None:
            await self._producer._end_block(commits=True)  # noqa: SLF001 - of this package
            return
        try:
            await self._producer._end_block(commits=False)  # noqa: SLF001 - of this package
        except Exception as failed:  # noqa: BLE001 - the exception of the block is the one to raise
            exception.add_note(f"the transaction could not be aborted: {failed}")


def _iterator(name: str, values: Iterable[Any]) -> Iterator[Any]:
    """A single value is refused: it would be split."""
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: expected a list or another iterable of {name}, got {type(values).__name__}")
    return iter(values)
