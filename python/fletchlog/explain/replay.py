"""A recorded run once more, and the proof that it is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog._core import Broker, Consumer
from fletchlog.errors import InvalidArgumentError, KafkaError
from fletchlog.explain.compare import Parting, parting
from fletchlog.explain.run import Explanation, explanation
from fletchlog.explain.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from fletchlog.explain.story import Step
    from fletchlog.types import TopicPartition

# while the recorded run found nothing within its timeout, so does this one
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

    def __str__(self) -> str:
        polls = len(self.recorded.story.polls) - 1
        if self.parting is None:
            return f"the same: {polls} polls, every request, answer and record range"
        return f"not the same; the runs part {self.parting}"


def replay(trace: Any, broker: Broker | str | PathLike[str]) -> Replay:
    """Makes the calls of a recorded run again, on the same log, and compares every decision.

    The consumer has the recorded properties and makes the recorded calls (assign, subscribe, seek, pause, resume, poll, ..) in
    their order. Offsets that the group had committed are taken from the trace, and nothing is committed; the group has another
    id, so that members of the recorded one are not disturbed. What other members of its group did is not part of a trace: a run
    with a rebalance parts where the assignment does.

    Args:
        trace: `Consumer.trace()` of a consumer with `fletchlog.trace`, or what `load_trace` read.
        broker: The broker, or its directory, which is then opened for reading only.

    Raises:
        fletchlog.errors.SchemaError: Not a consumer's trace.
        fletchlog.errors.InvalidArgumentError: The trace does not begin with the consumer.
        fletchlog.errors.KafkaError: As the consumer raises it.
    """
    recorded = explanation(trace)
    if not isinstance(broker, Broker):
        with Broker(broker, read_only=True) as opened:
            return replay(recorded.trace, opened)
    replayed = _run(recorded, broker)
    # lookups of committed offsets are answered from the trace, so they are no decisions of the run
    places = _places(recorded.story)
    return Replay(recorded, replayed, parting(_decisions(recorded.story, places), _decisions(replayed.story, places)))


def _run(recorded: Explanation, broker: Broker) -> Explanation:
    story = recorded.story
    if not any(step[0] == "call" for steps in story.polls for step in steps):
        raise InvalidArgumentError("this trace has no call of assign() or subscribe(): it does not begin where the consumer began")
    config: dict[str, Any] = dict(recorded.config) | {"fletchlog.trace": "true", "enable.auto.commit": "false"}
    if "group.id" in config:
        config["group.id"] += "-fletchlog-replay"
    places = _places(story)
    with Consumer(broker, config) as consumer:

        def start(partitions: list[TopicPartition]) -> None:
            for tp in partitions:
                if tp in places:
                    consumer.seek(tp, places[tp])

        for number, steps in enumerate(_polls(story)):
            if number > 0:
                _poll(consumer, steps)
            for step in steps:
                if step[0] == "call":
                    _call(consumer, story, step, start if places else None)
            if number == 0 and not recorded.subscribed:
                start([tp for tp in places if tp in consumer.assignment()])
        return explanation(consumer.trace(), lanes=story.lanes, ends=recorded.ends, source=recorded.source)


def _poll(consumer: Consumer, steps: list[Step]) -> None:
    quiet = any(step[0] == "return" and step[1] == 0 for step in steps)
    failed = not any(step[0] == "return" for step in steps)
    try:
        consumer.poll(timeout_ms=QUIET_MS if quiet else TIMEOUT_MS)
    except KafkaError:
        # a recorded poll that did not return raised; whether both did so for the same reason is in the traces
        if not failed:
            raise


def _call(consumer: Consumer, story: Story, step: Step, on_assigned: Callable[[list[TopicPartition]], object] | None) -> None:
    _, method, given = step
    name, _, pattern = method.partition(" ")
    match name:
        case "assign":
            consumer.assign([story.lanes[lane] for lane, _ in given])
        case "subscribe":
            consumer.subscribe([topic for topic, _ in given], on_assigned=on_assigned)
        case "subscribe_pattern":
            consumer.subscribe(pattern=pattern, on_assigned=on_assigned)
        case "unsubscribe":
            consumer.unsubscribe()
        case "seek":
            # seeks of a rebalance callback are made again by a callback, not here
            consumer.seek(story.lanes[given[0][0]], given[0][1])
        case "seek_to_beginning" | "seek_to_end" | "pause" | "resume":
            getattr(consumer, name)([story.lanes[lane] for lane, _ in given])


def _places(story: Story) -> dict[TopicPartition, int]:
    """Committed offsets that the recorded run began with."""
    found: dict[TopicPartition, int] = {}
    for steps in story.polls:
        for step in steps:
            if step[0] == "place" and "committed" in step[3]:
                found.setdefault(story.lanes[step[1]], step[2])
    return found


def _decisions(story: Story, places: dict[TopicPartition, int]) -> Story:
    """The polls as the program called them, without lookups of committed offsets and the seeks that stand for them."""

    def kept(step: Step) -> bool:
        if step[0] == "place":
            return "committed" not in step[3]
        return not (step[0] == "call" and step[1] == "seek" and places.get(story.lanes[step[2][0][0]]) == step[2][0][1])

    return Story(story.lanes, story.nodes, [[step for step in steps if kept(step)] for steps in _polls(story)])


def _polls(story: Story) -> list[list[Step]]:
    """The engine's polls as the program's: one that stops for a rebalance callback goes on with the next."""
    polls: list[list[Step]] = []
    goes_on = False
    for steps in story.polls:
        decisions = [step for step in steps if step[0] != "call"]
        if goes_on and decisions and decisions[0][0] == "order":
            polls[-1] = [step for step in polls[-1] if step[0] != "return"] + steps
        else:
            polls.append(list(steps))
        goes_on = decisions == [("return", 0)]
    return polls
