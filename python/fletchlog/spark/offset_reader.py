"""From what was asked for (options, limits) to offsets. Spark: KafkaOffsetReader.

The offsets (log start, end, first at a time) come from the engine; this module only chooses which of them a query uses.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fletchlog.spark.errors import DATA_LOSS_ADVICE, DataLossError, OptionError
from fletchlog.spark.limits import Earliest, GlobalTimestamp, Latest, Limit, SpecificOffsets, SpecificTimestamps
from fletchlog.spark.offsets import EARLIEST, LATEST, Offsets, Partition, text
from fletchlog.spark.options import Assign, SourceOptions, Subscribe, nearest
from fletchlog.spark.patterns import compile_java
from fletchlog.spark.range_calculator import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fletchlog.spark.cluster import ClusterLog
    from fletchlog.spark.directory import Directory

log = logging.getLogger("fletchlog.spark")


class OffsetReader:
    """Partitions of a query and their offsets in one directory or cluster."""

    def __init__(self, directory: Directory | ClusterLog, options: SourceOptions) -> None:
        self._directory = directory
        self._options = options

    def assigned(self) -> list[Partition]:
        """Partitions of the query that exist now, sorted. The caller handles missing ones."""
        strategy = self._options.strategy
        if isinstance(strategy, Assign):
            wanted = {topic for topic, _ in strategy.partitions}
            return [tp for tp in self._all_of(wanted) if tp in strategy.partitions]
        if isinstance(strategy, Subscribe):
            return self._all_of(strategy.topics)
        pattern = compile_java(strategy.pattern)
        return self._all_of(topic for topic in self._directory.topics() if pattern.fullmatch(topic))

    def check_all_exist(self) -> None:
        """A new query must find every topic and partition that it names.

        Raises:
            OptionError: What is missing, and the nearest topic there is.
        """
        strategy, found = self._options.strategy, set(self.assigned())
        topics = {topic for topic, _ in found}
        if isinstance(strategy, Assign):
            missing = strategy.partitions - found
            if missing:
                raise OptionError(f"{self._options.source} has no {text(missing)}; option assign must name partitions that exist")
        elif isinstance(strategy, Subscribe):
            for topic in strategy.topics:
                if topic not in topics:
                    known = tuple(self._directory.topics())
                    raise OptionError(f"{self._options.source} has no topic {topic}{nearest(topic, known)}")

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """Log start offsets; partitions that are gone are left out."""
        return {tp: span.start for tp, span in self._directory.spans(partitions).items()}

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        """End offsets for the isolation level of the query; partitions that are gone are left out."""
        return {tp: span.end for tp, span in self._directory.spans(partitions).items()}

    def first_at(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """First offset at or after a time (ms) of each partition; None: there is none."""
        return self._directory.offsets_for_times(timestamps)

    def resolve(self, limit: Limit, option: str) -> Offsets:
        """Offsets of all assigned partitions.

        Raises:
            OptionError: `limit` names other partitions than the query has, or a time has no record and the strategy is error.
        """
        self.check_all_exist()
        assigned = self.assigned()
        match limit:
            case Earliest():
                return self.earliest(assigned)
            case Latest():
                return self.latest(assigned)
            case SpecificOffsets(offsets):
                _check_same(option, offsets, assigned)
                return self._substitute(offsets)
            case SpecificTimestamps(timestamps, latest_if_none):
                _check_same(f"{option}ByTimestamp", timestamps, assigned)
                return self._at_times(timestamps, latest_if_none=latest_if_none)
            case GlobalTimestamp(timestamp, latest_if_none):
                return self._at_times(dict.fromkeys(assigned, timestamp), latest_if_none=latest_if_none)

    def ranges(self, start: Offsets, end: Offsets, report_loss: Callable[[str], None]) -> list[OffsetRange]:
        """Ranges between the offsets of two batches. Partitions that are new in `end` start at their earliest offset.

        Spark: KafkaOffsetReader#getOffsetRangesFromResolvedOffsets.
        """
        new = end.keys() - start.keys()
        first = self.earliest(new)
        if new - first.keys():
            report_loss(f"new partitions {text(new - first.keys())} vanished before they were read")
        for tp, offset in sorted(first.items()):
            if offset != 0:
                report_loss(f"new partition {text([tp])} starts at {offset} instead of 0")
        gone = start.keys() - end.keys()
        if gone:
            report_loss(f"partitions {text(gone)} are gone")
        begin = start | first
        ranges = []
        for tp, until in sorted(end.items()):
            if tp not in begin:
                continue
            if until < begin[tp]:
                report_loss(f"the end of {text([tp])} went back from {begin[tp]} to {until}")
            ranges.append(OffsetRange(*tp, begin[tp], until))
        return ranges

    def _all_of(self, topics: Iterable[str]) -> list[Partition]:
        return sorted((topic, partition) for topic in topics for partition in self._directory.partitions(topic))

    def _substitute(self, offsets: Mapping[Partition, int]) -> Offsets:
        spans = self._directory.spans([tp for tp, offset in offsets.items() if offset < 0])
        special = {EARLIEST: lambda tp: spans[tp].start, LATEST: lambda tp: spans[tp].end}
        return {tp: special[offset](tp) if offset in special else offset for tp, offset in offsets.items()}

    def _at_times(self, timestamps: Mapping[Partition, int], *, latest_if_none: bool) -> Offsets:
        found = self.first_at(timestamps)
        latest = self.latest(timestamps)
        result = {}
        for tp, timestamp in timestamps.items():
            offset = found.get(tp)
            if offset is None and not latest_if_none:
                raise OptionError(
                    f"no record of {text([tp])} is at or after {timestamp} ms; set startingOffsetsByTimestampStrategy to latest to start at the end then"
                )
            result[tp] = latest[tp] if offset is None else offset
        return result


def loss_reporter(options: SourceOptions) -> Callable[[str], None]:
    """Raises when failOnDataLoss is true, else logs a warning."""

    def report(what: str) -> None:
        if options.fail_on_data_loss:
            raise DataLossError(f"{what}. {DATA_LOSS_ADVICE}")
        log.warning("%s; going on because failOnDataLoss is false", what)

    return report


def _check_same(option: str, given: Mapping[Partition, int], assigned: list[Partition]) -> None:
    if given.keys() != set(assigned):
        raise OptionError(
            f"option {option} must name exactly the partitions of the query: it names {text(given)}, "
            f"the query reads {text(assigned)} (-1 is latest, -2 earliest)"
        )
