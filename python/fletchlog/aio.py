"""Clients under asyncio and `concurrent.futures`: what `await future`, `future.future()` and `async for records in consumer` do.

The event loop sleeps until a thread of the engine wakes it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from typing import TYPE_CHECKING

from fletchlog.errors import WakeupError

if TYPE_CHECKING:
    from fletchlog import Consumer, RecordFuture, Records
    from fletchlog.types import RecordMetadata

_log = logging.getLogger("fletchlog")
# how long one poll waits in its thread
_POLL_MS = 1_000


async def outcome(future: RecordFuture) -> RecordMetadata:
    """What `await future` returns. Giving up the wait changes nothing for the record."""
    loop = asyncio.get_running_loop()
    decided = loop.create_future()

    def set_decided() -> None:
        if not decided.done():  # else nobody waits any more
            decided.set_result(None)

    def notify_loop(_: RecordFuture) -> None:
        try:
            loop.call_soon_threadsafe(set_decided)
        except RuntimeError:  # the loop is closed, and its tasks with it
            if not loop.is_closed():
                raise

    future.add_done_callback(notify_loop)
    await decided
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


class Polls:
    """The polls of a consumer that have records, one after another, for ever. Each runs in a thread of the event loop's pool.

    No thread uses the consumer while the body of the loop runs, nor after the loop was left or cancelled. What a cancelled poll had read is
    returned by the next one.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Polls:
        return self

    async def __anext__(self) -> Records:
        while True:
            poll = asyncio.ensure_future(asyncio.to_thread(self._consumer.poll, _POLL_MS))
            try:
                records = await asyncio.shield(poll)
            except asyncio.CancelledError:
                await self._end(poll)
                raise
            if records:
                return records

    async def _end(self, poll: asyncio.Task[Records]) -> None:
        """Waits for the thread, which the wake-up ends, and hands back what it has read."""
        self._consumer.wakeup()
        while not poll.done():
            try:
                await asyncio.wait([poll])
            except asyncio.CancelledError:
                continue  # the thread has to end before anybody else may use the consumer
        records = None
        try:
            records = poll.result()
        except WakeupError:
            pass
        except Exception:  # noqa: BLE001 - any failure: the task ends by its cancellation
            _log.exception("a poll failed while its task was cancelled")
        # It may have ended before it saw the wake-up, which the next poll must not see.
        self._consumer._hand_back(records)  # noqa: SLF001 - of this package
