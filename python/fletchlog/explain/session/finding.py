"""What is wrong with the clients of a session: a finding, and what rules have to look at."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fletchlog.explain.session.client import Client
    from fletchlog.explain.session.facts import Facts
    from fletchlog.explain.session.groups import Group
    from fletchlog.explain.session.share_groups import ShareGroup

Level: TypeAlias = Literal["error", "warning"]
LEVELS: tuple[Level, ...] = get_args(Level)
# so many requests are named as evidence
EVIDENCE = 12
_ONE = re.compile(r"(?<![\d.,])1 (record|request|response|batch|fetch|commit|connection|member|time)(?:es|s)\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, in words.

    Attributes:
        code: Its short name, such as `poll-interval`; stable from release to release.
        level: `error`: records are lost, repeated, out of order or not read, or a client does not work; `warning`: it works, but slowly or at risk.
        text: What happens, in one or two sentences.
        change: What to change.
        evidence: Numbers of requests that show it, at most 12, in the order of arrival.
        count: How many requests show it.
        about: The client, group, topic or transactional id that it is about.
        weight: By which findings of one level are ranked, the greatest first.
    """

    code: str
    level: Level
    text: str
    change: str
    evidence: list[int] = field(default_factory=list)
    count: int = 0
    about: str = ""
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """What rules look at."""

    facts: Facts
    groups: dict[str, Group]
    clients: list[Client]
    share_groups: dict[str, ShareGroup]

    def name(self, client: int) -> str:
        """A client's name."""
        return self.facts.name(client)


def found(code: str, level: Level, weight: int, text: str, change: str, evidence: Iterable[int], about: str = "") -> Finding:
    """A finding with its evidence, shortened."""
    numbers = sorted(set(evidence))
    shown = numbers if len(numbers) <= EVIDENCE else [*numbers[: EVIDENCE // 2], *numbers[-EVIDENCE // 2 :]]
    text = _ONE.sub(r"1 \1", text)
    return Finding(code, level, text, change, shown, len(numbers), about, weight)


def seconds(us: float) -> str:
    """A time for a reader: 1.5 s, 20 ms."""
    if us >= 60_000_000:  # noqa: PLR2004 - a minute
        return f"{us / 60_000_000:.1f} min"
    return f"{us / 1_000_000:.1f} s" if us >= 1_000_000 else f"{us / 1000:.0f} ms"  # noqa: PLR2004 - a second


def clock(us: int) -> str:
    """A time of the day, UTC; of a damaged session it may be no time."""
    try:
        return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{us:,} us since 1970"


def several(names: Iterable[str], most: int = 3) -> str:
    """Names in a sentence: a, b and 4 more."""
    items = list(dict.fromkeys(names))
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
