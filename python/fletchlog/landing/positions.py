"""Which offsets a table has: what every commit of a table carries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fletchlog.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORM = 1


@dataclass
class Position:
    """How far a topic is.

    Attributes:
        topic_id: What tells the topic from all others (`ledger.lasting_names`), in the words of the first commit.
        offsets: By partition, the offset to continue at: all committed records before it are rows.
    """

    topic_id: str
    offsets: dict[int, int] = field(default_factory=dict)


Positions: TypeAlias = "dict[str, Position]"


class Wanted(NamedTuple):
    """A topic of the source, as a table looks for it.

    Attributes:
        names: What tells it from all others, the most lasting first.
        partitions: Their numbers.
    """

    names: list[str]
    partitions: list[int]


def copied(positions: Mapping[str, Position]) -> Positions:
    """The same in objects of its own."""
    return {topic: Position(position.topic_id, dict(position.offsets)) for topic, position in positions.items()}


def to_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """As a JSON value: `{"orders": {"id": .., "offsets": {"0": 12}}}`."""
    return {
        topic: {"id": position.topic_id, "offsets": {str(p): offset for p, offset in sorted(position.offsets.items())}} for topic, position in positions.items()
    }


def to_text(positions: Mapping[str, Position]) -> str:
    """As the text of a table property."""
    return json.dumps({"fletchlog": FORM, "topics": to_json(positions)}, separators=(",", ":"))


def of_json(value: Any, place: str) -> Positions:
    """The way back.

    Raises:
        fletchlog.errors.StorageError: It has another form.
    """
    try:
        return {topic: Position(str(one["id"]), {int(p): int(offset) for p, offset in one["offsets"].items()}) for topic, one in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{place}: the offsets that the table has cannot be read ({error!r}); they were written by something else, or were changed"
        ) from None


def of_text(text: str, place: str) -> Positions:
    """From the text of a table property.

    Raises:
        fletchlog.errors.StorageError: It has another form, or a newer one.
    """
    try:
        found = json.loads(text)
        form, topics = found["fletchlog"], found["topics"]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{place}: the offsets that the table has cannot be read ({error!r}); they were written by something else, or were changed"
        ) from None
    check_form(form, place)
    return of_json(topics, place)


def check_form(form: Any, place: str) -> None:
    """Refuses what a newer release has written.

    Raises:
        fletchlog.errors.StorageError: It is newer.
    """
    if form != FORM:
        raise StorageError(
            f"{place}: its offsets are written in form {form}, this release reads form {FORM}; use the release that has landed it, or a newer one"
        )
