"""Clients for asyncio: `AsyncConsumer`, `AsyncShareConsumer`, `AsyncProducer`, `AsyncCluster`, and what `await future` and `future.future()` do.

Nothing blocks the event loop, and nothing waits in a thread: the engine suspends a call that has to wait, and wakes the loop.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

from fletchlog.aio._cluster import AsyncCluster
from fletchlog.aio._consumer import AsyncConsumer
from fletchlog.aio._loop import decided
from fletchlog.aio._producer import AsyncProducer, AsyncTransaction
from fletchlog.aio._share_consumer import AsyncShareConsumer

if TYPE_CHECKING:
    from fletchlog._core import RecordFuture
    from fletchlog.types import RecordMetadata

__all__ = ["AsyncCluster", "AsyncConsumer", "AsyncProducer", "AsyncShareConsumer", "AsyncTransaction", "future", "outcome"]


async def outcome(future: RecordFuture) -> RecordMetadata:
    """What `await future` returns. Giving up the wait changes nothing for the record."""
    await decided(future)
    return future.result(0)


def future(record: RecordFuture) -> concurrent.futures.Future[RecordMetadata]:
    """What `RecordFuture.future()` returns. It is decided in the producer's thread of callbacks, and cannot be cancelled."""
    same: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
    same.set_running_or_notify_cancel()

    def decide(_: RecordFuture) -> None:
        failed = record.exception()
        if failed is None:
            same.set_result(record.result())
        else:
            same.set_exception(failed)

    record.add_done_callback(decide)
    return same
