"""Dates and times as text by ISO 8601, for every value of Arrow's types.

A year outside of 0000 to 9999 has a sign and at least four digits, as in `java.time` (`+10000-01-01`, `-0001-12-31`). The Gregorian calendar
repeats itself after 400 years, so such a year is read and written as one near 2000, and its cycles are added.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_OF_A_DAY = 86_400
_DAYS_OF_400_YEARS = 146_097
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LAST_OF_FOUR_DIGITS = 9999


def text_of(number: int, arrow_type: pa.DataType) -> str:
    """The text of one date, time or timestamp, given as the number that Arrow keeps of it."""
    types = arrow().types
    if types.is_date32(arrow_type):
        return _date(number)
    per_second = _PER_SECOND["ms" if types.is_date64(arrow_type) else arrow_type.unit]
    days, rest = divmod(number, _SECONDS_OF_A_DAY * per_second)
    if types.is_date64(arrow_type):
        return _date(days)
    if types.is_time(arrow_type):
        return _time(number, per_second)
    return f"{_date(days)}T{_time(rest, per_second)}{'' if arrow_type.tz is None else 'Z'}"


def _date(days: int) -> str:
    cycles, day = divmod(days, _DAYS_OF_400_YEARS)
    date = dt.date.fromordinal(_EPOCH + day)
    year = date.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > _LAST_OF_FOUR_DIGITS else ""
    return f"{sign}{abs(year):04}-{date.month:02}-{date.day:02}"


def _time(value: int, per_second: int) -> str:
    seconds, fraction = divmod(value, per_second)
    digits = f".{fraction:0{len(str(per_second)) - 1}}" if fraction else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}"
