"""Where a query starts and ends, as asked for; `offset_reader` turns it into offsets.

Precedence, as in Spark's kafka source: one timestamp for all > timestamps per partition > offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.spark.errors import OptionError
from fletchlog.spark.offsets import EARLIEST, HIGHEST, LATEST, Offsets, parse_numbers, text

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Earliest:
    """Log start of every partition."""


@dataclass(frozen=True)
class Latest:
    """Log end of every partition."""


@dataclass(frozen=True)
class SpecificOffsets:
    """One offset per partition, or for a whole topic; -2 earliest, -1 latest."""

    offsets: Offsets


@dataclass(frozen=True)
class SpecificTimestamps:
    """First offset at or after one time per partition (ms)."""

    timestamps: Offsets
    latest_if_none: bool


@dataclass(frozen=True)
class GlobalTimestamp:
    """First offset at or after one time in all partitions (ms)."""

    timestamp: int
    latest_if_none: bool


Limit = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'


def parse(side: str, options: Mapping[str, str], default: Limit) -> Limit:
    """The limit of one side (`starting` or `ending`) from lower-cased options.

    Raises:
        OptionError: Malformed value.
    """
    latest_if_none = side == "ending" or _strategy(options) == "latest"
    single = options.get(f"{side}timestamp")
    if single is not None:
        try:
            timestamp = int(single.strip())
        except ValueError:
            timestamp = HIGHEST + 1
        if not 0 <= timestamp <= HIGHEST:
            message = f"option {side}Timestamp: expected one number of milliseconds since 1970, from 0, got {single}"
            if timestamp in (LATEST, EARLIEST):
                message += f"; for latest or earliest set {side}Offsets"
            raise OptionError(message)
        return GlobalTimestamp(timestamp, latest_if_none)
    times = options.get(f"{side}offsetsbytimestamp")
    if times is not None:
        name = f"{side}OffsetsByTimestamp"
        return SpecificTimestamps(parse_numbers(name, times.strip(), _TIMES_EXAMPLE, 0), latest_if_none)
    offsets = options.get(f"{side}offsets")
    if offsets is None:
        return default
    match offsets.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    return SpecificOffsets(parse_numbers(f"{side}Offsets", offsets.strip(), _OFFSETS_EXAMPLE, EARLIEST, {"earliest": EARLIEST, "latest": LATEST}))


def check_batch(start: Limit, end: Limit) -> None:
    """What a batch query cannot mean (Spark: KafkaSourceProvider, batch options).

    Raises:
        OptionError: A start at the end, an end at the start, or two JSON texts that contradict each other.
    """
    if isinstance(start, Latest) or (isinstance(start, SpecificOffsets) and LATEST in start.offsets.values()):
        raise OptionError("option startingOffsets: a batch query cannot start at latest (-1); use earliest, an offset or a time")
    if isinstance(end, Earliest) or (isinstance(end, SpecificOffsets) and EARLIEST in end.offsets.values()):
        raise OptionError("option endingOffsets: a batch query cannot end at earliest (-2); use latest, an offset or a time")
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        _check_pair("Offsets", start.offsets, end.offsets)
    if isinstance(start, SpecificTimestamps) and isinstance(end, SpecificTimestamps):
        _check_pair("OffsetsByTimestamp", start.timestamps, end.timestamps)


def _check_pair(name: str, start: Offsets, end: Offsets) -> None:
    if start.keys() != end.keys():
        raise OptionError(f"options starting{name} and ending{name} name different partitions: {text(start.keys())} against {text(end.keys())}")
    for partition, first in start.items():
        if 0 <= end[partition] < first:
            raise OptionError(f"option starting{name}: {first} for {text([partition])} is above the end, {end[partition]}")


def _strategy(options: Mapping[str, str]) -> str:
    value = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if value not in {"error", "latest"}:
        raise OptionError(f"option startingOffsetsByTimestampStrategy: expected error or latest, got {value}")
    return value
