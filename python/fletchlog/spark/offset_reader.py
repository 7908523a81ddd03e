"""From what was asked for (options, limits) to offsets. Spark: KafkaOffsetReader.

The offsets (log start, end, first at a time) come from the engine; this module only chooses which of them a query uses.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from fletchlog._core import find_topics
from fletchlog.spark.errors import DATA_LOSS_ADVICE, DataLossError, OptionError
from fletchlog.spark.limits import Earliest, GlobalTimestamp, Latest, Limit, SpecificOffsets, SpecificTimestamps
from fletchlog.spark.offsets import EARLIEST, LATEST, WHOLE_TOPIC, Offsets, text
from fletchlog.spark.options import Assign, SourceOptions, Subscribe, nearest
from fletchlog.spark.range_calculator import OffsetRange
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from fletchlog.spark.cluster import ClusterLog
    from fletchlog.spark.directory import Directory, Span

log = logging.getLogger("fletchlog.spark")


class OffsetReader:
    """Partitions of a query and their offsets in one directory or cluster."""

    def __init__(self, directory: Directory | ClusterLog, options: SourceOptions) -> None:
        self._directory = directory
        self._options = options

    def assigned(self, known: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Partitions of the query that are seen now, sorted.

        A cluster that has just started may not show yet what it has, so it is asked again (`fetchOffset.numRetries`).

        Args:
            known: Partitions that the query has read before. If they are not seen, the caller judges it.

        Raises:
            OptionError: What the query names and is not seen, and the nearest topic there is.
        """
        for attempt in range(self._options.fetch_attempts):
            if attempt:
                time.sleep(self._options.fetch_interval_ms / 1000)
            seen = self._seen()
            missing = self._missing({*seen, *known})
            if not missing:
                break
        else:
            raise OptionError(missing)
        return seen

    def _seen(self) -> list[TopicPartition]:
        strategy = self._options.strategy
        if isinstance(strategy, Assign):
            wanted = {topic for topic, _ in strategy.partitions}
            return [tp for tp in self._all_of(wanted) if tp in strategy.partitions]
        if isinstance(strategy, Subscribe):
            return self._all_of(strategy.topics)
        return self._all_of(find_topics(strategy.pattern, self._directory.topics()))

    def _missing(self, found: set[TopicPartition]) -> str | None:
        """What the query names and is not among these."""
        strategy = self._options.strategy
        if isinstance(strategy, Assign):
            missing = strategy.partitions - found
            return f"{self._options.source} has no {text(missing)}; option assign must name partitions that exist" if missing else None
        if isinstance(strategy, Subscribe):
            topics = {topic for topic, _ in found}
            for topic in strategy.topics:
                if topic not in topics:
                    return f"{self._options.source} has no topic {topic}{nearest(topic, self._directory.topics())}"
        return None

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Log start offsets; partitions that are gone are left out."""
        return {tp: span.start for tp, span in self._directory.spans(partitions).items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """End offsets for the isolation level of the query; partitions that are gone are left out."""
        return {tp: span.end for tp, span in self._directory.spans(partitions).items()}

    def first_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """First offset at or after a time (ms) of each partition; None: there is none."""
        return self._directory.offsets_for_times(timestamps)

    def resolve(self, limit: Limit, option: str) -> Offsets:
        """Offsets of all assigned partitions.

        Raises:
            OptionError: `limit` names other partitions than the query has, or a time has no record and the strategy is error.
        """
        assigned = self.assigned()
        spans = self._directory.spans(assigned)
        gone = set(assigned) - spans.keys()
        if gone:
            raise OptionError(f"{self._options.source} does not show {text(gone)} any more; start the query again")
        match limit:
            case Earliest():
                return {tp: span.start for tp, span in spans.items()}
            case Latest():
                return {tp: span.end for tp, span in spans.items()}
            case SpecificOffsets(offsets):
                of_topics = {topic: offset for (topic, partition), offset in offsets.items() if partition == WHOLE_TOPIC}
                named = {tp: offset for tp, offset in offsets.items() if tp[1] != WHOLE_TOPIC}
                named |= {tp: of_topics[tp[0]] for tp in assigned if tp[0] in of_topics}
                _check_same(option, named, assigned, " (-1 is latest, -2 earliest)")
                return {tp: {EARLIEST: spans[tp].start, LATEST: spans[tp].end}.get(offset, offset) for tp, offset in named.items()}
            case SpecificTimestamps(timestamps, latest_if_none):
                _check_same(f"{option}ByTimestamp", timestamps, assigned, " (0 is the first record that has a time)")
                return self._at_times(timestamps, spans, latest_if_none=latest_if_none)
            case GlobalTimestamp(timestamp, latest_if_none):
                return self._at_times(dict.fromkeys(assigned, timestamp), spans, latest_if_none=latest_if_none)

    def ranges(self, start: Offsets, end: Offsets) -> tuple[list[OffsetRange], list[str]]:
        """Ranges between two offsets of a stream, and what shows that records are lost. Partitions that are new in `end` start at their earliest offset.

        Spark: KafkaOffsetReader#getOffsetRangesFromResolvedOffsets.
        """
        losses = []
        new = end.keys() - start.keys()
        first = self.earliest(new) if new else {}
        if new - first.keys():
            losses.append(f"new partitions {text(new - first.keys())} vanished before they were read")
        losses += [f"new partition {text([tp])} starts at {offset} instead of 0" for tp, offset in sorted(first.items()) if offset != 0]
        gone = start.keys() - end.keys()
        if gone:
            losses.append(
                f"partitions {text(gone)} are gone, or {self._options.source} does not show them now: if they come back, the query can continue where it was"
            )
        begin = start | first
        ranges = [OffsetRange(*tp, begin[tp], until) for tp, until in sorted(end.items()) if tp in begin]
        losses += [f"the end of {item.topic}-{item.partition} went back from {item.start} to {item.end}" for item in ranges if item.size < 0]
        return ranges, losses

    def _all_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        return sorted(TopicPartition(topic, partition) for topic in topics for partition in self._directory.partitions(topic))

    def _at_times(self, timestamps: Mapping[TopicPartition, int], spans: Mapping[TopicPartition, Span], *, latest_if_none: bool) -> Offsets:
        found = self.first_at(timestamps)
        result = {}
        for tp, timestamp in timestamps.items():
            offset = found.get(tp)
            if offset is None and not latest_if_none:
                raise OptionError(
                    f"no record of {text([tp])} is at or after {timestamp} ms; set startingOffsetsByTimestampStrategy to latest to start at the end then"
                )
            result[tp] = spans[tp].end if offset is None else offset
        return result


def loss_reporter(options: SourceOptions) -> Callable[[str], None]:
    """Raises when failOnDataLoss is true, else logs a warning."""

    def report(what: str) -> None:
        if options.fail_on_data_loss:
            raise DataLossError(f"{what}. {DATA_LOSS_ADVICE}")
        log.warning("%s; going on because failOnDataLoss is false", what)

    return report


def _check_same(option: str, given: Mapping[TopicPartition, int], assigned: list[TopicPartition], hint: str) -> None:
    if given.keys() != set(assigned):
        raise OptionError(f"option {option} must name exactly the partitions of the query: it names {text(given)}, the query reads {text(assigned)}{hint}")
