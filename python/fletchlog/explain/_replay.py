"""Repeats a recorded run and proves that it is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog._core import Cluster, Consumer
from fletchlog._place import at
from fletchlog.errors import InvalidArgumentError, KafkaError
from fletchlog.explain.compare import Parting, parting
from fletchlog.explain.refusals import refuse_change, refuse_others
from fletchlog.explain.run import Explanation, explanation
from fletchlog.explain.words import counted
from fletchlog.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from fletchlog._core import Broker
    from fletchlog._place import Source
    from fletchlog.explain._story import Step, Story
    from fletchlog.types import TopicPartition

# a poll that found nothing in the recorded run finds nothing here
TIMEOUT_MS = 5000
QUIET_MS = 50


@dataclass(frozen=True)
class Replay:
    """What `replay` found.

    Attributes:
        recorded: The recorded run.
        replayed: The run made now.
        parting: The first decision in which they differ, None if they are the same.
    """

    recorded: Explanation
    replayed: Explanation
    parting: Parting | None

    @property
    def same(self) -> bool:
        """Whether every decision and every record range of every poll is the same."""
        return self.parting is None

    def __repr__(self) -> str:
        return f"<fletchlog.explain.Replay: {self}>"

    def __str__(self) -> str:
        polls = len(self.recorded.story.polls) - 1
        if self.parting is None:
            return f"the same: {counted(polls, 'poll')}, every request, answer and record range"
        return f"not the same; the runs part {self.parting}"


def replay(trace: Any, source: Source) -> Replay:
    """Repeats the calls of a recorded run on the same log and compares every decision.

    The consumer has the recorded properties and makes the recorded calls (assign, subscribe, seek, pause, resume, poll, ..) in
    their order, those of a rebalance callback in a callback. Offsets that the group had committed are taken from the trace, and
    nothing is committed; the group has another id, so that members of the recorded one are not disturbed.

    A trace lacks two things, and a run that depends on them is refused: what other members of the group did, and the log itself. Give
    the log as it was when the run began, e.g. a copy of the directory.

    Args:
        trace: `Consumer.trace()` of a consumer with `fletchlog.trace`, or what `load_trace` read.
        source: The log: an open `Broker`, or a directory or an object store, which is opened for reading only.

    Raises:
        fletchlog.errors.SchemaError: Not a consumer's trace.
        fletchlog.errors.InvalidArgumentError: The trace does not begin with the consumer; the source is a cluster.
        fletchlog.errors.ReplayRefusedError: The assignment was not the whole of what was subscribed to, or changed without a call of the
            program; or an answer to the same request brings other records now.
        fletchlog.errors.KafkaError: As the consumer raises it.
    """
    recorded = explanation(trace)
    with at(source) as broker:
        if isinstance(broker, Cluster):
            raise InvalidArgumentError("a cluster's log changes while it is read: replay the trace on a Broker or a directory")
        refuse_others(recorded.story, broker)
        replayed = _run(recorded, broker)
    found = parting(recorded.story, replayed.story)
    if found is not None:
        refuse_change(recorded.story, replayed.story, found)
    return Replay(recorded, replayed, found)


def _run(recorded: Explanation, broker: Broker) -> Explanation:
    story = recorded.story
    if not any(step[0] == "call" for steps in story.polls for step in steps):
        raise InvalidArgumentError("this trace has no call of assign() or subscribe(): it does not begin where the consumer began")
    config: dict[str, Any] = dict(recorded.config) | {"fletchlog.trace": "true", "enable.auto.commit": "false"}
    if "group.id" in config:
        config["group.id"] += "-fletchlog-replay"
    stops = [number for number in range(1, len(story.polls)) if _stops(story, number)]
    with Consumer(broker, config) as consumer:
        consumer._begin_from_committed(_committed(story))  # noqa: SLF001 - of this package
        waiting = iter(stops)

        def on_assigned(_: list[TopicPartition]) -> None:
            _calls(consumer, story, next(waiting, -1), None)

        for number, steps in enumerate(story.polls):
            if number - 1 in stops:
                continue  # part of the poll before: the callback ran in between
            if number > 0:
                _poll(consumer, steps)
            if number not in stops:
                _calls(consumer, story, number, on_assigned if stops else None)
        return explanation(consumer.trace(), lanes=story.lanes, ends=recorded.ends, source=recorded.source)


def _stops(story: Story, number: int) -> bool:
    """Whether this poll of the engine ended for a rebalance callback; the program's poll continues with the next one."""
    decisions = [step for step in story.polls[number] if step[0] != "call"]
    after = [step for step in story.polls[number + 1] if step[0] != "call"] if number + 1 < len(story.polls) else []
    return decisions == [("return", 0)] and bool(after) and after[0][0] == "order"


def _poll(consumer: Consumer, steps: list[Step]) -> None:
    quiet = any(step[0] == "return" and step[1] == 0 for step in steps)
    failed = not any(step[0] == "return" for step in steps)
    try:
        consumer.poll(timeout_ms=QUIET_MS if quiet else TIMEOUT_MS)
    except KafkaError:
        # a recorded poll that did not return raised; whether both did so for the same reason is in the traces
        if not failed:
            raise


def _calls(consumer: Consumer, story: Story, number: int, on_assigned: Callable[[list[TopicPartition]], object] | None) -> None:
    """Makes the calls that followed a poll."""
    for step in story.polls[number] if number >= 0 else []:
        if step[0] == "call":
            _call(consumer, story, step, on_assigned)


def _call(consumer: Consumer, story: Story, step: Step, on_assigned: Callable[[list[TopicPartition]], object] | None) -> None:
    _, method, given, epoch = step
    match method:
        case "assign":
            consumer.assign([story.lanes[lane] for lane, _ in given])
        case "subscribe":
            consumer.subscribe([topic for topic, _ in given], on_assigned=on_assigned)
        case "subscribe_pattern":
            consumer.subscribe(pattern=given[0][0], on_assigned=on_assigned)
        case "unsubscribe":
            consumer.unsubscribe()
        case "seek":
            lane, offset = given[0]
            consumer.seek(story.lanes[lane], OffsetAndMetadata(offset, "", epoch) if epoch >= 0 else offset)
        case "seek_to_beginning" | "seek_to_end" | "pause" | "resume":
            getattr(consumer, method)([story.lanes[lane] for lane, _ in given])


def _committed(story: Story) -> dict[TopicPartition, OffsetAndMetadata]:
    """Committed offsets that the recorded run began with."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for steps in story.polls:
        for step in steps:
            if step[0] == "place" and "committed" in step[3]:
                found.setdefault(story.lanes[step[1]], OffsetAndMetadata(step[2], "", step[4]))
    return found
