"""Recorded sessions: what clients asked a listener or a proxy for, and what they got.

    with broker.listen(record="session.fltrace") as listener:
        run(listener.bootstrap)
    session = Session("session.fltrace")
    for exchange in session:
        if isinstance(exchange, Exchange) and exchange.api == "Fetch":
            print(exchange.client_id, exchange.request, exchange.response)

The bytes of the file are described on the page *Sessions*.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fletchlog._core import Session
from fletchlog._core import SessionConnection as Connection
from fletchlog._core import SessionExchange as Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Connection", "Exchange", "Session", "follow", "frames"]


def follow(session: Session, poll_s: float = 0.5) -> Iterator[Connection | Exchange]:
    """Everything in a session that is being recorded, and what comes, until the recording ends.

    First what is known, as `iter(session)` gives it; then, in the order of events, a connection when it was opened and again when it was
    closed, and a request when it has its outcome. So a request that was pending at first is given twice.

    Args:
        session: The session.
        poll_s: How often the file is looked at, seconds. Recorders write at least once in a second.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
        fletchlog.errors.DamagedFileError: It is damaged.
    """
    yield from session
    while True:
        has_ended = session.has_ended
        yield from session.read_on()
        if has_ended:
            return
        time.sleep(poll_s)


def frames(session: Session, connection: int | None = None, api: str | None = None) -> Iterator[tuple[Exchange, bytes]]:
    """The requests of a session as bytes, in the order of arrival: a size in front of each makes them requests that can be sent again.

    Records and secrets are not in them, unless the session has values. Requests whose bytes were not recorded are left out.

    Args:
        session: The session.
        connection: Those of this connection alone.
        api: Those of this API alone, by Kafka's name.
    """
    for exchange in session:
        if isinstance(exchange, Connection) or connection not in (None, exchange.connection) or api not in (None, exchange.api):
            continue
        if frame := exchange.frame():
            yield exchange, frame
