"""Times on the command line: one rule for every option and every field.

| text                                  | time                                              |
|---------------------------------------|---------------------------------------------------|
| `1700000000000`                       | milliseconds since 1970                           |
| `2024-05-01`, `2024-05-01T12:00+02:00` | ISO 8601; without a zone it is UTC                |
| `now`                                 | the time at which the command began               |
| `15m`, `-15m`, `1h30m ago`            | so long ago: w, d, h, m, s, ms. Not in a file      |
"""

from __future__ import annotations

import datetime as dt
import re
import time

from fletchlog.cli.common import CommandError

HELP = "ISO 8601 (UTC without a zone), ms since 1970, now, or how long ago: 15m, 1h30m"
_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_AGO = re.compile(r"-?((?:\d+ ?(?:ms|[wdhms]) ?)+)(?:ago)?", re.ASCII)
_PART = re.compile(r"(\d+) ?(ms|[wdhms])", re.ASCII)


def moment(text: str, *, bound: bool = False) -> int:
    """Milliseconds since 1970 of a time in a file, or of a `bound` as for `milliseconds`.

    Raises:
        ValueError: It is none.
    """
    if text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    return milliseconds(dt.datetime.fromisoformat(text), bound=bound)


def milliseconds(time: dt.datetime, *, bound: bool = False) -> int:
    """Milliseconds since 1970; a time without a zone is UTC.

    The time of a record is the millisecond in which it lies, as in `Producer.send`. A `bound` is the first millisecond that is not before it, as in
    `Consumer.seek` and `scan(start_time=)`.
    """
    zoned = time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time
    microseconds = (zoned - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    return -(-microseconds // 1000) if bound else microseconds // 1000


def when(option: str, text: str) -> int:
    """Milliseconds since 1970 of a time that an option gives.

    Raises:
        CommandError: It is none.
    """
    if text == "now" or _AGO.fullmatch(text):
        return time.time_ns() // 1_000_000 - sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return moment(text, bound=True)
    except (ValueError, OverflowError):
        raise CommandError(f"{option} {text} is no time: {HELP}") from None
