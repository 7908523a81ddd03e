"""What a trace does not record, so that a replay refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.errors import ReplayRefusedError

if TYPE_CHECKING:
    from fletchlog._core import Broker
    from fletchlog.explain._story import Step, Story
    from fletchlog.explain.compare import Parting

# calls that set an assignment
ASSIGNING = {"assign", "subscribe", "subscribe_pattern", "unsubscribe"}


def refuse_others(story: Story, broker: Broker) -> None:
    """Refuses a run in whose group there were other members.

    Raises:
        fletchlog.errors.ReplayRefusedError: The first assignment lacks partitions of the topics, or a later one came without a call.
    """
    asked: list[str] | None = None
    held: set[int] | None = None
    for number, steps in enumerate(story.polls):
        for step in steps:
            if step[0] == "call" and step[1] in ASSIGNING:
                asked = [topic for topic, _ in step[2]] if step[1] == "subscribe" else None
                held = None
            elif step[0] == "order":
                now = set(step[1])
                if held is None:
                    _refuse_share(story, now, asked, broker)
                elif now != held:
                    raise ReplayRefusedError(
                        f"the assignment changed in poll {number} without a call of the program: another member of the group joined or left, or "
                        "partitions were added, and no trace tells that. Record a run of one member, or of assign()"
                    )
                held = now


def _refuse_share(story: Story, now: set[int], asked: list[str] | None, broker: Broker) -> None:
    mine = {story.lanes[lane] for lane in now}
    known = broker.topics(include_internal=True)
    every = {(topic, p.partition) for topic in asked or () if topic in known for p in broker.describe_topic(topic).partitions}
    lacking = sorted(every - mine)
    if lacking:
        named = ", ".join(f"{topic}-{partition}" for topic, partition in lacking[:3]) + (", .." if len(lacking) > 3 else "")  # noqa: PLR2004 - some
        raise ReplayRefusedError(
            f"the recorded consumer did not have {named}: other members of its group had them, or they were added since, and no trace tells "
            "that. Record a run of one member, or of assign()"
        )


def refuse_change(recorded: Story, replayed: Story, found: Parting) -> None:
    """Refuses a log that is not the recorded one any more.

    Up to where they part both runs sent the same requests, so it is the log that makes their answers differ.

    Raises:
        fletchlog.errors.ReplayRefusedError: They part in an answer, or in a position that was looked up.
    """
    one, other = _step(recorded, found), _step(replayed, found)
    kinds = {step[0] for step in (one, other) if step is not None}
    waited = one is None or one[0] in {"return", "answer"}
    if kinds == {"place"} or (other is not None and other[0] == "answer" and waited):
        raise ReplayRefusedError(
            f"the log is not what it was: the runs part {found}. Records were appended or deleted after the recorded run began; replay it on a "
            "copy of the directory from then"
        )


def _step(story: Story, found: Parting) -> Step | None:
    steps = story.polls[found.poll] if found.poll < len(story.polls) else []
    return steps[found.decision - 1] if found.decision <= len(steps) else None
