"""Clients under asyncio and `concurrent.futures`: what `await future`, `future.future()` and `async for records in consumer` do.

The event loop sleeps until a thread of the engine wakes it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from typing import TYPE_CHECKING

from fletchlog.errors import WakeupError

if TYPE_CHECKING:
    from fletchlog import Consumer, Records
    from fletchlog.types import RecordFuture, RecordMetadata

_log = logging.getLogger("fletchlog")
# after how long the thread of a poll without records looks whether its event loop is still there
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
    """The polls of a consumer that have records, one after another, for ever.

    Each runs in a thread of its own, which ends with it. The event loop's executor is left to others, whatever the number of consumers.
    No thread uses the consumer while the body of the loop runs, nor after the loop was left or cancelled. What a cancelled poll had read is
    returned by the next one.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Polls:
        return self

    async def __anext__(self) -> Records:
        while not (records := await _Poll(self._consumer).records()):
            pass
        return records


class _Poll:
    """One poll that waits until there are records, in its thread.

    The thread hands what it has read back to the consumer, and the task takes it from there: so nothing is lost if the task is gone by then.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        # decided in the event loop, once the thread no longer uses the consumer
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._failed: BaseException | None = None
        # of what follows; a thread may have it while the garbage collector gives up the task
        self._lock = threading.RLock()
        self._is_given_up = False
        self._is_over = False

    async def records(self) -> Records:
        run = contextvars.copy_context().run
        # a daemon if the thread of the event loop is one
        threading.Thread(target=run, args=(self._poll,), name="fletchlog-poll").start()
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            await self._end()
            raise
        except GeneratorExit:  # the event loop has ended without this task
            self._give_up()
            raise
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        return self._consumer.poll(0)  # does not wait: returns what was handed back

    def _poll(self) -> None:
        """What the thread does."""
        try:
            polled = self._consumer.poll(_POLL_MS)
            while not polled and not self._is_loop_gone():
                polled = self._consumer.poll(_POLL_MS)
            if polled:
                self._consumer._hand_back(polled)  # noqa: SLF001 - of this package
        except BaseException as failed:  # noqa: BLE001 - raised in the task
            self._failed = failed
        with self._lock:
            self._is_over = True
            if self._is_given_up:
                self._forget_wakeup()
        try:
            self._loop.call_soon_threadsafe(self._set_ended)
        except RuntimeError:  # the loop is closed, and its tasks with it
            if not self._loop.is_closed():
                raise

    def _is_loop_gone(self) -> bool:
        # A loop that was left at the end of the process must not keep it alive.
        return self._loop.is_closed() or not (threading.main_thread().is_alive() or self._loop.is_running())

    def _set_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def _end(self) -> None:
        """Waits for the thread, which the wake-up ends."""
        self._consumer.wakeup()
        while not self._ended.done():
            try:
                await asyncio.wait([self._ended])
            except asyncio.CancelledError:
                continue  # the thread has to end before anybody else may use the consumer
            except GeneratorExit:
                self._give_up()
                raise
        if self._failed is not None and not isinstance(self._failed, WakeupError):
            _log.error("a poll failed while its task was cancelled", exc_info=self._failed)
        self._forget_wakeup()

    def _give_up(self) -> None:
        """Ends the thread without waiting for it."""
        with self._lock:
            if not self._is_over:
                self._is_given_up = True
                self._consumer.wakeup()

    def _forget_wakeup(self) -> None:
        """The thread may have ended before it saw the wake-up, which the next poll must not see."""
        self._consumer._hand_back(None)  # noqa: SLF001 - of this package
