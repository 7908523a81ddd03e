"""How busy the machine is while a test runs."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_SLEEP_S = 0.01


class Lateness:
    """A context manager that measures how late a sleeping thread wakes up: a busy machine is as late with every other thread.

    Attributes:
        most_s: The most of it, in seconds.
    """

    def __init__(self) -> None:
        self.most_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            time.sleep(_SLEEP_S)
            self.most_s = max(self.most_s, time.monotonic() - began - _SLEEP_S)
