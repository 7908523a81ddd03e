"""Runs a consumer to see what it does, and collects what its trace shows."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fletchlog import _place
from fletchlog._core import Broker, Cluster, Consumer, config_table
from fletchlog._whole import described_whole
from fletchlog.errors import IllegalStateError, InvalidArgumentError
from fletchlog.explain import words
from fletchlog.explain._story import Story, tell
from fletchlog.explain.gaps import Gap, gaps
from fletchlog.explain.order import Place, places
from fletchlog.types import Run, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from fletchlog._place import Source
    from fletchlog.admin import TopicDescription

VERSION = "fletchlog.consumer.version"
ORDER = "fletchlog.fetch.order"
_CONNECTING_POLLS = 10


@dataclass(frozen=True)
class Explanation:
    """What a consumer did and why. A notebook shows the picture.

    Attributes:
        trace: The consumer's trace, a `pyarrow.Table` with its properties in the schema's metadata.
        story: The trace, step by step.
        ends: First and next offset of each lane's log; empty where only the trace is known.
        source: Where the records are, for headlines.
        gaps: Offsets without a record, of each lane; empty where only the trace is known.
        same: Orders that decide the same, to the end of this run (`distinct`).
    """

    trace: pa.Table
    story: Story
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    source: str = ""
    gaps: dict[tuple[str, int], list[Gap]] = field(default_factory=dict)
    same: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, str]:
        """The properties that were set."""
        return config_of(self.trace)

    @property
    def release(self) -> str:
        """The Java client release reproduced."""
        return self.config.get(VERSION, default(VERSION))

    @property
    def order(self) -> str:
        """`partition` (Kafka's), `kip-387` or `timestamp`."""
        return self.config.get(ORDER, "partition")

    @property
    def subscribed(self) -> bool:
        """Whether the partitions came from subscribe()."""
        return any(step[0] == "call" and step[1].startswith("subscribe") for steps in self.story.polls for step in steps)

    @property
    def polls(self) -> list[list[Run]]:
        """What each poll took from the queue, in that order, up to the last poll that returned records."""
        runs = self.story.runs()
        while runs and not runs[-1]:
            runs.pop()
        return runs

    @property
    def events(self) -> list[dict[str, Any]]:
        """The rows of the trace."""
        rows: list[dict[str, Any]] = self.trace.to_pylist()
        return rows

    @property
    def places(self) -> list[Place]:
        """Partitions in the order in which they are asked for, with their hash buckets."""
        return self._order()[0]

    @property
    def buckets(self) -> int | None:
        """Size of the hash table that decides, None where no table decides."""
        return self._order()[1]

    def _order(self) -> tuple[list[Place], int | None]:
        lanes = [(*self.story.lanes[lane], self.story.nodes[lane]) for lane in self.story.order()]
        return places(lanes, self.release, subscribe=self.subscribed)

    def text(self, *, full: bool = False) -> str:
        """The story, for a terminal: in short, or with `full` every decision of every poll."""
        if not full:
            from fletchlog.explain.compare import title
            from fletchlog.explain.short import short

            return short(self, title(self))
        rule = {
            "kip-387": "KIP-387: each poll takes from the next partition in turn",
            "timestamp": "by timestamp: each poll takes the oldest record that is buffered",
        }.get(self.order, f"Java client {self.release}: a poll takes what was fetched first until it is used up")
        found, buckets = self._order()
        return "\n".join([*words.request_order(found, buckets, self.release, subscribed=self.subscribed), "", *words.poll_by_poll(self.story, rule)])

    def page(self) -> str:
        """One page that needs no network, to step through it. `fletchlog.explain.page` puts several runs on one."""
        from fletchlog.explain.pages import page

        return page([self])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        from fletchlog.explain.compare import title

        found = [words.counted(len(self.story.lanes), "partition"), words.counted(len(self.polls), "poll")]
        return f"<fletchlog.explain.Explanation: {title(self)}, {', '.join(found)}>"

    def _repr_html_(self) -> str:
        from fletchlog.explain.picture import svg

        return svg([self], dark=False) if self.polls else f"<pre>{html.escape(self.text())}</pre>"

    def _repr_png_(self) -> bytes | None:
        from fletchlog.explain.picture import png

        try:
            return png([self]) if self.polls else None
        except ModuleNotFoundError:
            return None  # without matplotlib a notebook has the HTML


def polls(
    source: Source,
    topics: Sequence[str],
    config: Mapping[str, Any] | None = None,
    *,
    polls: int = 20,
    subscribe: bool = False,
    timeout_ms: int = 1000,
    title: str = "",
) -> Explanation:
    """Runs a consumer over all partitions of `topics` from their beginning and explains what happened.

    Nothing is committed, so the broker may be open for reading only.

    Args:
        source: Where the topics are: an open `Broker` or `Cluster`, `"kafka://HOST:PORT,..."`, or a directory or an object store, which is opened for
            reading only. The gaps between offsets of a cluster are not explained: it does not say what was there.
        topics: Topics in the order in which a program would give them.
        config: Consumer properties, e.g. `{"fletchlog.consumer.version": "3.9"}`.
        polls: At most so many polls; fewer if nothing is left to read.
        subscribe: Use subscribe() with a group of one member instead of assign().
        timeout_ms: Of each poll.
        title: Where the records are, for headlines; "": the name of the source, if it is not open.

    Raises:
        fletchlog.errors.InvalidArgumentError: Fewer polls than one.
        fletchlog.errors.IllegalStateError: A topic was deleted and made again meanwhile.
        fletchlog.errors.KafkaError: As the consumer raises it.
    """
    if polls < 1:
        raise InvalidArgumentError(f"polls is {polls}; give 1 or more")
    if not isinstance(source, Broker | Cluster):
        # of a consumer's properties those that connect it
        config_of_cluster = {name: value for name, value in (config or {}).items() if not name.startswith(("fletchlog.", "group."))}
        place = _place.Place(source)
        with _place.at(place, config=config_of_cluster if place.kind == _place.CLUSTER else None) as opened:
            shown = "" if place.kind == _place.CLUSTER else str(place)
            return _explained(opened, topics, config, polls=polls, subscribe=subscribe, timeout_ms=timeout_ms, title=title or shown)
    return _explained(source, topics, config, polls=polls, subscribe=subscribe, timeout_ms=timeout_ms, title=title)


def _explained(
    source: Broker | Cluster, topics: Sequence[str], config: Mapping[str, Any] | None, *, polls: int, subscribe: bool, timeout_ms: int, title: str
) -> Explanation:
    described = _described(source, topics)
    ends = {(t, p.partition): (p.log_start_offset, p.high_watermark) for t, d in described.items() for p in d.partitions}
    defaults: dict[str, Any] = {"auto.offset.reset": "earliest"}
    given = defaults | dict(config or {}) | {"enable.auto.commit": "false", "fletchlog.trace": "true"}
    if subscribe:
        given.setdefault("group.id", "fletchlog-explain")
    # all that is left when this many records have come; a further poll would only wait
    left = sum(end - start for start, end in ends.values())
    with Consumer(source, given) as consumer:
        if subscribe:
            consumer.subscribe(list(described))
        else:
            consumer.assign([TopicPartition(*tp) for tp in ends])
        # the first polls of a cluster connect and join
        empty = _CONNECTING_POLLS if isinstance(source, Cluster) else 0
        for _ in range(polls):
            records = consumer.poll(timeout_ms=timeout_ms)
            while not len(records) and empty > 0 and left > 0:
                records, empty = consumer.poll(timeout_ms=timeout_ms), empty - 1
            left -= len(records)
            if not len(records) or left <= 0:
                break
            empty = 0
        found = explanation(consumer.trace(), ends=ends, source=title)
    for topic, now in _described(source, topics).items():
        if now.topic_id != described[topic].topic_id:
            raise IllegalStateError(f"topic {topic} was deleted and made again while it was read: what came is of two topics; explain it again")
    if isinstance(source, Cluster):
        return found
    committed = found.config.get("isolation.level") == "read_committed"
    stable = {(t, p.partition): p.last_stable_offset for t, d in described.items() for p in d.partitions} if committed else None
    return replace(found, gaps=gaps(source, found.story, ends, stable))


def _described(source: Broker | Cluster, topics: Sequence[str]) -> dict[str, TopicDescription]:
    describe = source.describe_topic if isinstance(source, Cluster) else partial(described_whole, source)
    return {topic: describe(topic) for topic in dict.fromkeys(topics)}


def explanation(
    trace: Any, *, ends: Mapping[tuple[str, int], tuple[int, int]] | None = None, lanes: Sequence[tuple[str, int]] | None = None, source: str = ""
) -> Explanation:
    """Explains a trace: `Consumer.trace()`, or a saved one.

    Raises:
        fletchlog.errors.SchemaError: This table is not a consumer's trace.
    """
    from fletchlog.interop import to_pyarrow

    table = trace if hasattr(trace, "column_names") else to_pyarrow(trace)
    return Explanation(table, tell(table, lanes if lanes is not None else sorted(ends or ())), dict(ends or {}), source)


def config_of(trace: pa.Table) -> dict[str, str]:
    """The properties in a trace's metadata."""
    prefix = b"fletchlog.config."
    metadata: dict[bytes, bytes] = trace.schema.metadata or {}
    return {key[len(prefix) :].decode(): value.decode() for key, value in metadata.items() if key.startswith(prefix)}


def default(name: str) -> str:
    """The default of a consumer property."""
    return next(key.default or "" for key in config_table() if key.scope == "consumer" and key.name == name)
