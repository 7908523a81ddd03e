"""How the engine's calls are awaited in an event loop: nothing blocks the loop, and no thread waits.

A call that would sleep is suspended by the engine (`_Operation`). What resumes it reaches the loop

- over sockets: by the file descriptor of the client, which the loop watches while the call is suspended,
- in this process: by `_Wakeups`, a descriptor that threads of the engine make readable, one of each loop,
- by time: the engine says after how many ms the call has something to do. What is due in a broker of this process has one timer of each loop.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from fletchlog._core import RecordFuture, _Operation, _TimedWork, _Wakeups

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")

# the longest time until a suspended call looks again, in ms
_LONGEST_MS = 3_600_000
# after how many seconds of calls that did not wait the other tasks have a turn
_TURN = 0.01
_REACTORS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Reactor] = weakref.WeakKeyDictionary()


class Reactor:
    """What the engine can wake in one event loop. It does not keep the loop alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wakeups = _Wakeups()
        self.last_turn = time.monotonic()
        self._last_token = 0
        self._sleepers: dict[int, Callable[[], object]] = {}
        self._timers: dict[int, _Timer] = {}
        loop.add_reader(self.wakeups.fileno(), self._wake)

    @staticmethod
    def running() -> Reactor:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        reactor = _REACTORS.get(loop)
        if reactor is None:
            reactor = _REACTORS[loop] = Reactor(loop)
        return reactor

    def token(self, woken: Callable[[], object]) -> int:
        """A number with which the engine has `woken` called, until `forget`."""
        self._last_token += 1
        self._sleepers[self._last_token] = woken
        return self._last_token

    def forget(self, token: int) -> None:
        self._sleepers.pop(token, None)

    def timer(self, work: _TimedWork) -> _Timer:
        """The timer of a broker in this process."""
        timer = self._timers.get(work.broker)
        if timer is None:
            timer = self._timers[work.broker] = _Timer(self, work)
        return timer

    def forget_timer(self, work: _TimedWork) -> None:
        del self._timers[work.broker]

    def _wake(self) -> None:
        for token in self.wakeups.take():
            woken = self._sleepers.get(token)
            if woken is not None:
                woken()


class _Timer:
    """Does what is due in a broker of this process, as long as a client of the loop uses it."""

    def __init__(self, reactor: Reactor, work: _TimedWork) -> None:
        self._reactor = reactor
        self._work = work
        self._token = reactor.token(self._changed)
        self._clients: weakref.WeakSet[Calls] = weakref.WeakSet()
        self._next: asyncio.TimerHandle | None = None
        self._is_planned = False
        work.watch(reactor.wakeups, self._token)

    def add(self, client: Calls) -> None:
        self._clients.add(client)

    def remove(self, client: Calls) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._reactor.forget(self._token)
            self._reactor.forget_timer(self._work)
            if self._next is not None:
                self._next.cancel()

    def plan(self) -> None:
        """Sets the timer, once in a turn of the loop."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._plan)

    def _changed(self) -> None:
        if self._work.is_closed:
            for client in self._clients:
                client.wake()
        else:
            self.plan()

    def _plan(self) -> None:
        self._is_planned = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        due_in_ms = self._work.due_in_ms() if self._clients else None
        if due_in_ms is not None:
            self._next = asyncio.get_running_loop().call_later(due_in_ms / 1000, self._run)

    def _run(self) -> None:
        self._next = None
        self._work.run()
        self.plan()


class _Client(Protocol):
    """A client of the engine."""

    def _watch(self, wakeups: _Wakeups, token: int, /) -> int | None: ...


class Calls:
    """The calls of one client."""

    def __init__(self, client: _Client, work: _TimedWork | None = None) -> None:
        self._client = client
        self._work = work
        self._reactor: Reactor | None = None
        self._token = 0
        self._timer: _Timer | None = None
        # what the loop watches: a copy, so that it means nothing else once the client has closed its own
        self._descriptor: int | None = None
        # weak: a task that a closed loop has left is destroyed, and its call ends
        self._waiting: weakref.WeakSet[asyncio.Future[None]] = weakref.WeakSet()

    async def call(self, method: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """Awaits `method(*arguments, **keywords)` of the client. A cancelled call ends as after Ctrl-C.

        Many calls that need not wait, one after another, give other tasks a turn every 10 ms: before a call, so that no result is lost.
        """
        reactor = Reactor.running()
        now = time.monotonic()
        if now - reactor.last_turn > _TURN:
            reactor.last_turn = now
            await asyncio.sleep(0)
        result: _T = await self._ended(reactor, _Operation(method, *arguments, **keywords))
        return result

    async def begin(self, method: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """As `call`, without a turn of other tasks before."""
        result: _T = await self._ended(Reactor.running(), _Operation(method, *arguments, **keywords))
        return result

    async def _ended(self, reactor: Reactor, operation: _Operation) -> Any:
        """The result of a call that has not begun."""
        if self._reactor is not reactor:
            self._attach(reactor)
        wait_ms = operation.step()
        if wait_ms is not None:
            try:
                while wait_ms is not None:
                    await self._woken(wait_ms)
                    wait_ms = operation.step()
            finally:
                operation.cancel()
        return operation.result()

    def __del__(self) -> None:
        self.detach()

    def wake(self) -> None:
        """Resumes the suspended calls, which look whether they can go on."""
        for future in list(self._waiting):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """The client is closed."""
        self.detach()
        self._work = None

    def detach(self) -> None:
        """The loop no longer watches the client."""
        if self._reactor is not None:
            self._reactor.forget(self._token)
            self._reactor = None
        if self._timer is not None:
            self._timer.remove(self)
            self._timer = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _attach(self, reactor: Reactor) -> None:
        """Another loop runs than before."""
        self.detach()
        self._reactor = reactor
        wake = weakref.WeakMethod(self.wake)
        self._token = reactor.token(lambda: (found := wake()) and found())
        descriptor = self._client._watch(reactor.wakeups, self._token)  # noqa: SLF001 - of this package
        self._descriptor = None if descriptor is None else os.dup(descriptor)
        if self._work is not None:
            self._timer = reactor.timer(self._work)
            self._timer.add(self)

    async def _woken(self, wait_ms: int) -> None:
        """Until the client is woken, or the time is over."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.add(future)
        if self._timer is not None:
            self._timer.plan()
        if self._descriptor is not None and len(self._waiting) == 1:
            loop.add_reader(self._descriptor, self.wake)
        late = loop.call_later(min(wait_ms, _LONGEST_MS) / 1000, _set, future)
        try:
            await future
        finally:
            late.cancel()
            self._waiting.discard(future)
            if self._descriptor is not None and not self._waiting:
                loop.remove_reader(self._descriptor)


async def decided(record: RecordFuture) -> None:
    """Until the outcome of the record is known. Giving up the wait changes nothing for it."""
    reactor = Reactor.running()
    future = asyncio.get_running_loop().create_future()
    token = reactor.token(lambda: _set(future))
    try:
        if record._watch(reactor.wakeups, token):  # noqa: SLF001 - of this package
            await future
    finally:
        reactor.forget(token)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
