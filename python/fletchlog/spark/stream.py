"""Micro-batch reading. Spark: KafkaMicroBatchStream.

One object exists as long as the query and plans its batches; `read` runs in other processes with another copy of it, so they
share nothing.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fletchlog.spark.batch import RangePartition
from fletchlog.spark.cluster import open_log
from fletchlog.spark.compat import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, end_stopped_planner
from fletchlog.spark.errors import CheckpointError, DataLossError
from fletchlog.spark.limits import Earliest, SpecificOffsets
from fletchlog.spark.offset_reader import OffsetReader, loss_reporter
from fletchlog.spark.offsets import JsonOffsets, Offsets, from_json, text, to_json
from fletchlog.spark.options import SubscribePattern
from fletchlog.spark.range_calculator import pack, split
from fletchlog.spark.rate_limit import Delay, proportional
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.typed import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fletchlog.spark.options import SourceOptions

NO_LIMIT = 2**63 - 1
_REPAIR = (
    "To continue where the query was, edit the newest file in the folder `offsets` of the checkpoint, delete the hidden file .NUMBER.crc beside it, and "
    "start the query again: in place of that line, write"
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches over the partitions of a query."""

    def __init__(self, options: SourceOptions, schema: StructType, clock_ms: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._options = options
        self._schema = schema
        self._start_limit = options.stream_start()
        self._report_loss = loss_reporter(options)
        self._initial: JsonOffsets | None = None
        self._start_is_logged = True
        self._losses: list[str] = []
        self._available_now = False
        self._target: Offsets | None = None
        self._known_latest: Offsets | None = None
        least = options.min_offsets_per_trigger
        self._delay = Delay(least, options.max_trigger_delay_ms, clock_ms) if least is not None else None

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query starts. Spark calls it twice for its first batch, and both answers must be the same."""
        if self._initial is None:
            self._initial = to_json(self._reader().resolve(self._start_limit, "startingOffsets"))
            limit = self._start_limit
            fixed = isinstance(limit, SpecificOffsets) and all(offset >= 0 for offset in limit.offsets.values())
            self._start_is_logged = fixed
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most maxOffsetsPerTrigger. Without it the limit is unreachable rather than ReadAllAvailable, see latestOffset."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or NO_LIMIT)

    def latestOffset(self, start: JsonOffsets | None = None, limit: ReadLimit | None = None) -> JsonOffsets:  # noqa: N802
        """End of the next batch.

        Spark logs the end of a batch before it runs, but the start of the very first one nowhere: if that batch failed, `latest` (or a time, or an
        earliest that retention moves) would be looked up again and records between the two
        answers would be lost. So the first batch of a new query ends where it starts: it is empty, and its end is logged.
        Only Trigger.Once (the one caller that passes ReadAllAvailable) has a single batch and must read at once.
        """
        start = self.initialOffset() if start is None else start
        begin = from_json(start)
        if self._target is not None:
            latest = self._target
        else:
            latest = self._latest(begin)
            if self._available_now:
                self._target = latest
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest)
        if not self._start_is_logged and start == self._initial:
            self._start_is_logged = True
            return start
        if self._delay is not None and not self._available_now and self._delay.holds_back(begin, latest):
            return to_json(begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else NO_LIMIT
        if most == NO_LIMIT:
            return to_json(latest)
        new = latest.keys() - begin.keys()
        return to_json(proportional(most, begin | (self._reader().earliest(new) if new else {}), latest))

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """End of the log as last seen: Spark shows it beside the end of the batch, the difference is the lag."""
        return to_json(self._known_latest) if self._known_latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is frozen at the first latestOffset, so that it is never before a start that is `latest`."""
        self._available_now = True

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Tasks of one batch. The start may be behind the end of the log after a crash and a deleted topic."""
        begin, until = from_json(start), from_json(end)
        if not self._start_is_logged and start == self._initial:
            self._check_first(begin, until)
        self._start_is_logged = True  # a batch that is planned is logged, its end too: also the empty one in which a query died
        if self._target is not None:
            self._check_target(begin, until)
        self._check_complete(begin, until)
        ranges, losses = self._reader().ranges(begin, until)
        self._report(losses)
        options = self._options
        tasks = split(ranges, options.min_partitions, options.max_records_per_partition)
        typed = described(options)
        return [RangePartition(ranges, options, typed) for ranges in pack(tasks, options.max_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task."""
        return read_ranges(partition.ranges, self._options, self._schema)  # type: ignore[attr-defined]

    def commit(self, end: JsonOffsets) -> None:
        """Nothing: the checkpoint of the query keeps the offsets."""

    def stop(self) -> None:
        """Spark calls this in the process that plans, when the query was stopped."""
        end_stopped_planner()

    def _reader(self) -> OffsetReader:
        # looked up for every call: the cache notices a directory that was deleted and created again
        return OffsetReader(open_log(self._options), self._options)

    def _latest(self, begin: Offsets) -> Offsets:
        """The end of the log for a query that has read up to `begin`. It is judged here, because Spark logs the end of a batch before anything else.

        A partition that is not seen need not be deleted: a cluster that is starting does not show all, nor what a client may not see. So it stays at
        the offset that the query has reached, and a query that ends here continues from there.
        Spark: KafkaOffsetReader#fetchLatestOffsets, which logs what is left over.
        """
        options = self._options
        if not begin and not isinstance(options.strategy, SubscribePattern):
            raise CheckpointError(
                "the checkpoint of the query holds no offsets, {}: an earlier release logged that when it did not see the topics. "
                f"{_REPAIR} the line with offsets of the newest file before it that has one"
            )
        for attempt in range(options.fetch_attempts):
            if attempt:
                time.sleep(options.fetch_interval_ms / 1000)
            # what an object store has now; until the next batch all else is of the same objects
            reader = OffsetReader(open_log(options, anew=True), options)
            seen = reader.latest(reader.assigned(begin))
            losses = reader.ranges(begin, seen)[1]
            if not losses or losses == self._losses:
                break
        self._report(losses)
        self._losses = losses
        self._known_latest = seen
        return {tp: offset for tp, offset in begin.items() if tp not in seen} | seen

    def _report(self, losses: list[str]) -> None:
        """What is not known yet: Spark asks many times a second whether there is a new batch."""
        for loss in losses:
            if loss not in self._losses:
                self._report_loss(loss)

    def _check_first(self, begin: Offsets, until: Offsets) -> None:
        """The first batch of an earlier run, again. Spark has logged its end and not its start, which is looked up anew: `latest` is later by now."""
        late = {tp for tp, offset in until.items() if offset < begin.get(tp, 0)}
        if late and self._options.fail_on_data_loss and not isinstance(self._start_limit, Earliest):
            ends, starts = (json.dumps(to_json({tp: of[tp] for tp in late})) for of in (until, begin))
            raise CheckpointError(
                f"an earlier run of the query did not finish its first batch. It ends at {ends}, and startingOffsets is {starts} by now. Set the option "
                f"startingOffsets to where that run began: of a query of Spark's kafka source, the file sources/0/0 of the checkpoint has it; "
                f"a query of this source began at the end of that batch"
            )

    def _check_complete(self, begin: Offsets, until: Offsets) -> None:
        """The end of a batch has all partitions that its start has, unless an earlier release or Spark's kafka source logged it."""
        left_out = begin.keys() - until.keys()
        if left_out and (self._options.fail_on_data_loss or self._reader().latest(left_out)):
            whole = to_json({tp: begin[tp] for tp in left_out} | until)
            raise CheckpointError(
                f"the checkpoint says that the batch ends at {json.dumps(to_json(until))}. Partitions {text(left_out)} are gone there: they were not seen "
                f"when an earlier release, or Spark's kafka source, logged it. {_REPAIR} {json.dumps(whole)}"
            )

    def _check_target(self, begin: Offsets, until: Offsets) -> None:
        """Spark: KafkaMicroBatchStream#verifyEndOffsetForTriggerAvailableNow."""
        target = self._target or {}
        if until.keys() != target.keys():
            raise DataLossError(
                f"the partitions of the query changed while it ran with availableNow: the batch ends with {text(until)}, "
                f"the run began with {text(target)}; start the query again"
            )
        latest = self._reader().latest({tp for tp, offset in until.items() if offset > begin.get(tp, -1)})
        for tp, offset in sorted(until.items()):
            if offset > target[tp]:
                raise DataLossError(f"the batch ends at {offset} of {text([tp])}, behind the end of this run, {target[tp]}")
            if offset > latest.get(tp, begin.get(tp, -1)):
                self._report_loss(f"the batch ends at {offset} of {text([tp])}, behind the end of its log, {latest.get(tp)}")
