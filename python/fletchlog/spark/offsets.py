"""Offsets per partition as JSON, in the text form of Spark's kafka source: `{"topic":{"0":123}}`.

Spark compares and stores the text, so the order is fixed: topics by name, partitions by number.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Partition: TypeAlias = tuple[str, int]
"""Topic and partition."""
Offsets: TypeAlias = dict[Partition, int]
"""Next offset to read (one after the last one read) of every partition."""
JsonOffsets: TypeAlias = dict[str, dict[str, int]]
"""The same as Spark keeps it."""

EARLIEST = -2
LATEST = -1


def to_json(offsets: Mapping[Partition, int]) -> JsonOffsets:
    """Sorted nested form that Spark stores."""
    result: JsonOffsets = {}
    for topic, partition in sorted(offsets):
        result.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return result


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Back from the nested form."""
    return {(topic, int(partition)): offset for topic, parts in offsets.items() for partition, offset in parts.items()}


def text(partitions: Iterable[Partition]) -> str:
    """Partitions for a message: `orders-0, orders-1`."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"


def parse_numbers(option: str, value: str, example: str, lowest: int) -> Offsets:
    """Reads `{"topic":{"0":23}}` from an option.

    Raises:
        OptionError: Not such a JSON text, or a number below `lowest`.
    """
    parsed = _load(option, value, example)
    result: Offsets = {}
    for topic, parts in parsed.items():
        if not isinstance(parts, dict):
            raise _malformed(option, value, example)
        for partition, number in parts.items():
            if not partition.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                raise _malformed(option, value, example)
            if number < lowest:
                message = f"option {option}: {number} for {topic}-{partition} is below {lowest}"
                raise OptionError(message)
            result[topic, int(partition)] = number
    return result


def parse_partitions(option: str, value: str) -> frozenset[Partition]:
    """Reads `{"topicA":[0,1]}` from an option.

    Raises:
        OptionError: Not such a JSON text, or it names no partition.
    """
    example = '{"topicA":[0,1],"topicB":[2,4]}'
    result = set()
    for topic, parts in _load(option, value, example).items():
        if not isinstance(parts, list):
            raise _malformed(option, value, example)
        for partition in parts:
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                raise _malformed(option, value, example)
            result.add((topic, partition))
    if not result:
        message = f"option {option} names no partition: {value}"
        raise OptionError(message)
    return frozenset(result)


def _load(option: str, value: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise _malformed(option, value, example)
    return parsed


def _malformed(option: str, value: str, example: str) -> OptionError:
    return OptionError(f"option {option}: expected e.g. {example}, got {value}")
