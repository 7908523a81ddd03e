"""Ctrl-C raises KeyboardInterrupt only where that does no harm.

| Ctrl-C comes                         | and                                                                                  |
|--------------------------------------|--------------------------------------------------------------------------------------|
| before a command begins, or after it | the process ends at once with code 130: nothing is open                              |
| while a module is imported           | is looked at again 20 ms later: a module imported by half complains, or swallows it  |
| inside `held()`                      | KeyboardInterrupt at the end of the block                                            |
| else                                 | KeyboardInterrupt, and again 20 ms later if it was not handled: C code may drop it   |

Imports nothing but the standard library, and of that little.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED = 130
_AGAIN_SECONDS = 0.02
_IMPORTING = "<frozen importlib._bootstrap>"


class _State:
    running = False
    held = False
    pending = False


def install() -> None:
    """Takes SIGINT over, unless it is ignored (a job in the background of a script) or another handler is set."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
        signal.signal(signal.SIGALRM, _interrupted)
        sys.unraisablehook = _unraisable


@contextmanager
def running() -> Iterator[None]:
    """A command is running: it has to be left through its `with` blocks."""
    _State.running = True
    try:
        yield
    finally:
        _State.running = False
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def held() -> Iterator[None]:
    """What is done in this block is not torn apart; keep it short. Inside another one it is part of that."""
    outer = _State.held
    _State.held = True
    try:
        yield
    finally:
        _State.held = outer
    if _State.pending and not outer:
        _State.pending = False
        _again()
        raise KeyboardInterrupt


def _interrupted(number: int, frame: FrameType | None) -> None:
    first = number == signal.SIGINT
    if not _State.running:
        if first:
            os._exit(INTERRUPTED)
    elif _State.held:
        _State.pending = True
    else:
        _again()
        if not _importing(frame) and (first or not _handled(sys.exc_info()[1])):
            raise KeyboardInterrupt


def _again() -> None:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _handled(error: BaseException | None) -> bool:
    """Whether `with` and `finally` blocks are just being left because of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    # it is raised again
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False
