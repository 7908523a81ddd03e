"""Offsets per partition as JSON, in the text form of Spark's kafka source: `{"topic":{"0":123}}`.

Spark compares and stores the text, so the order is fixed: topics by name, partitions by number.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from fletchlog.spark.errors import CheckpointError, OptionError
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets: TypeAlias = dict[TopicPartition, int]
"""Next offset to read (one after the last one read) of every partition."""
JsonOffsets: TypeAlias = dict[str, dict[str, int]]
"""The same as Spark keeps it."""

WHOLE_TOPIC = -1
"""In place of a partition's number: all partitions of the topic."""
EARLIEST = -2
LATEST = -1
HIGHEST = 2**63 - 1
"""The highest offset and the latest time that Kafka knows."""
_PARTITION_DIGITS = 10
# of a malformed value: enough to recognise it
_SHOWN = 200


def to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Sorted nested form that Spark stores."""
    result: JsonOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def from_json(offsets: Any) -> Offsets:
    """Back from the nested form.

    Raises:
        CheckpointError: It has another form.
    """
    found = numbers(offsets)
    if found is None or not all(0 <= offset <= HIGHEST for offset in found.values()):
        raise CheckpointError(
            f'the checkpoint of the query is damaged, or of another source: expected offsets such as {{"orders":{{"0":23}}}}, got '
            f"{_shown(json.dumps(offsets))}; restore the checkpoint, or start anew with another one"
        )
    return found


def numbers(parsed: Any) -> Offsets | None:
    """A number per partition; None: something else."""
    result: Offsets = {}
    if not isinstance(parsed, dict):
        return None
    for topic, parts in parsed.items():
        if not isinstance(parts, dict):
            return None
        for partition, number in parts.items():
            whole = isinstance(number, int | float) and not isinstance(number, bool) and number % 1 == 0  # 5.0 is 5, as for Spark
            if not whole or not partition.isdecimal() or len(partition) > _PARTITION_DIGITS:
                return None
            result[TopicPartition(topic, int(partition))] = int(number)
    return result


def text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a message: `orders-0, orders-1`."""
    return ", ".join(topic if partition == WHOLE_TOPIC else f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"


def parse_numbers(option: str, value: str, example: str, lowest: int, words: Mapping[str, int] | None = None) -> Offsets:
    """Reads `{"topic":{"0":23}}` from an option, and `{"topic":"word"}` for all partitions of the topic.

    Raises:
        OptionError: Not such a JSON text, or a number below `lowest` or above what 64 bits hold.
    """
    given = _load(option, value, example)
    of_topics = {topic: word for topic, word in given.items() if isinstance(word, str) and word in (words or {})}
    result = numbers({topic: parts for topic, parts in given.items() if topic not in of_topics})
    if result is None:
        raise _malformed(option, value, example)
    result |= {TopicPartition(topic, WHOLE_TOPIC): (words or {})[word] for topic, word in of_topics.items()}
    for tp, number in result.items():
        if not lowest <= number <= HIGHEST:
            bound = f"below {lowest}" if number < lowest else f"above {HIGHEST}"
            raise OptionError(f"option {option}: {number} for {text([tp])} is {bound}")
    return result


def parse_partitions(option: str, value: str) -> frozenset[TopicPartition]:
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
            result.add(TopicPartition(topic, partition))
    if not result:
        raise OptionError(f"option {option} names no partition: {value}")
    return frozenset(result)


def _load(option: str, value: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):  # nested too deep, or a number of thousands of digits
        parsed = None
    if not isinstance(parsed, dict):
        raise _malformed(option, value, example)
    return parsed


def _malformed(option: str, value: str, example: str) -> OptionError:
    return OptionError(f"option {option}: expected e.g. {example}, got {_shown(value)}")


def _shown(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}.. ({len(value):,} characters)"
