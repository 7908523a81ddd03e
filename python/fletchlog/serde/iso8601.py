"""Dates and times as text by ISO 8601, for every value of Arrow's types.

A year outside of 0000 to 9999 has a sign and at least four digits, as in `java.time` (`+10000-01-01`, `-0001-12-31`). The Gregorian calendar
repeats itself after 400 years, so such a year is read and written as one near 2000, and its cycles are added.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from fletchlog.interop import require
from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_OF_A_DAY = 86_400
_DAYS_OF_400_YEARS = 146_097
_EPOCH = dt.date(1970, 1, 1).toordinal()
# 400 years that nanoseconds since 1970 reach
_FIRST_YEAR = 1800
_LAST_OF_FOUR_DIGITS = 9999
# pyarrow does not read the first second that nanoseconds reach, in 1677
_FAR = r"^([+-]\d{4,}|1677)(-\d\d-\d\d.*)$"
_ZONED = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"


def to_text(array: pa.Array) -> pa.Array:
    """An array of dates, times or timestamps as strings; timestamps of a zone in UTC, with a Z.

    Raises:
        pyarrow.ArrowInvalid: A time is not within a day, or a date64 is not a whole day.
    """
    pa, types = arrow(), arrow().types
    array.validate(full=True)
    numbers = array.cast(pa.int32() if types.is_date32(array.type) or types.is_time32(array.type) else pa.int64())
    return pa.array([None if value is None else text_of(value, array.type) for value in numbers.to_pylist()], pa.string())


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


def from_text(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Strings as dates, times or timestamps. A timestamp without a zone is in UTC where the type has a zone; one with a zone is put to UTC.

    Raises:
        pyarrow.ArrowInvalid: A text is no such date or time, or one beyond the numbers of the type.
    """
    pa, compute, types = arrow(), require("pyarrow.compute", "serde"), arrow().types
    parse = _times if types.is_time(arrow_type) else _dates if types.is_date(arrow_type) else _timestamps
    try:
        if types.is_time(arrow_type) or not compute.any(compute.match_substring_regex(array, _FAR)).as_py():
            return parse(array, arrow_type)
        return _far(array, arrow_type)
    except (pa.ArrowInvalid, OverflowError):
        texts = array.drop_null().slice(0, 3).to_pylist()
        which = repr(texts[0])[:60] if array.null_count == len(array) - 1 else f"one of {', '.join(map(repr, texts))[:60]}, .."
        raise pa.ArrowInvalid(f"no {arrow_type} in ISO 8601: {which}") from None


def _far(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Dates or timestamps, some of years that pyarrow does not read."""
    pa, types = arrow(), arrow().types
    is_date = types.is_date(arrow_type)
    cycles, near = zip(*map(_near, array.to_pylist()), strict=True)
    parsed = _dates(pa.array(near, pa.string()), pa.date32()) if is_date else _timestamps(pa.array(near, pa.string()), arrow_type)
    numbers = parsed.cast(pa.int32() if is_date else pa.int64()).to_pylist()
    days = 1 if is_date else _SECONDS_OF_A_DAY * _PER_SECOND[arrow_type.unit]
    whole = [None if one is None else one + more * _DAYS_OF_400_YEARS * days for one, more in zip(numbers, cycles, strict=True)]
    if types.is_date64(arrow_type):
        return pa.array([None if one is None else one * _SECONDS_OF_A_DAY * 1000 for one in whole], pa.int64()).cast(arrow_type)
    return pa.array(whole, pa.int32() if is_date else pa.int64()).cast(arrow_type)


def _near(text: str | None) -> tuple[int, str | None]:
    """A text as a number of cycles and a text of a year of four digits without a sign."""
    far = None if text is None else re.match(_FAR, text)
    if far is None:
        return 0, text
    cycles, year = divmod(int(far[1]) - _FIRST_YEAR, 400)
    return cycles, f"{year + _FIRST_YEAR}{far[2]}"


def _times(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    pa, compute = arrow(), require("pyarrow.compute", "serde")
    since = compute.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp(arrow_type.unit)).cast(pa.int64())
    return since.cast(pa.int32() if pa.types.is_time32(arrow_type) else pa.int64()).cast(arrow_type)


def _dates(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    return array.cast(arrow().date32()).cast(arrow_type)


def _timestamps(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    pa, compute = arrow(), require("pyarrow.compute", "serde")
    zoned = compute.match_substring_regex(array, _ZONED)
    nothing = pa.scalar(None, pa.string())
    in_utc = compute.if_else(zoned, array, nothing).cast(pa.timestamp(arrow_type.unit, "UTC")).cast(pa.int64())
    local = compute.if_else(zoned, nothing, array).cast(pa.timestamp(arrow_type.unit)).cast(pa.int64())
    return compute.coalesce(in_utc, local).cast(arrow_type)
