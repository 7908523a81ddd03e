"""The broker behind the fixtures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import fletchlog as fl
from fletchlog._closing import Closing
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from datetime import timedelta

    import pyarrow as pa

    from fletchlog.registry import SchemaRegistry
    from fletchlog.testing import Request, Requests

DEFAULTS = {
    # Kafka's own defaults, which the embedded broker does not have
    "auto.create.topics.enable": "true",
    # tests use short sessions
    "group.min.session.timeout.ms": "10",
    # a member of a share group gets its partitions with its second heartbeat, not later
    "group.share.assignment.interval.ms": "0",
    # `clock.advance` deletes what retention would delete
    "log.retention.check.interval.ms": "300000",
}
# What `produce` writes with: from 4.2 on a producer halves a batch that is too large for the log, until a record is refused. If a leader is
# missing, the test ends in these 10 s, and says so.
_PRODUCER: dict[str, Any] = {
    "fletchlog.producer.version": "4.2",
    "acks": "1",
    "enable.idempotence": False,
    "linger.ms": 0,
    "max.block.ms": 10_000,
    "delivery.timeout.ms": 10_000,
    "request.timeout.ms": 10_000,
}
# Kafka: ClassicGroupState, ConsumerGroupState
_STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
# A failed test shows so many of the last requests.
_SHOWN = 50


class Kafka(Closing):
    """A broker in memory with a listener on loopback.

    Attributes:
        bootstrap: The clients' `bootstrap.servers`.
        broker: The broker itself, with everything that `fletchlog.Broker` can do.
        clock: Its clock: `clock.advance(seconds=45)`, `clock.freeze()`, `clock.resume()`.
        registry: A schema registry over this broker, opened when it is first asked for: `kafka.registry.url`. Needs the extras `registry` and `serde`.
        session: The file in which the session of its clients is recorded, see `fletchlog.explain.session`; None: none is.
        faults: What goes wrong between clients and this broker, see `fletchlog.testing.FaultPlan`. A rule that never applied fails the test.
    """

    def __init__(
        self, nodes: int | Mapping[int, str | None] = 1, config: Mapping[str, Any] | None = None, record: str | os.PathLike[str] | None = None
    ) -> None:
        """Opens both. `nodes` is a number, or the racks of nodes by their ids; `config` are broker properties, None: as without the fixture.

        `record` is a file for the session.
        """
        if not isinstance(nodes, int | Mapping):
            raise TypeError(f"nodes: expected a number, or the racks of nodes by their ids, got {type(nodes).__name__} {nodes!r}")
        # with several nodes a topic has replicas, so that another node can lead it
        of_cluster = {"default.replication.factor": str(min(3, nodes if isinstance(nodes, int) else len(nodes)))}
        settings = DEFAULTS | of_cluster | dict(config or {})
        self.broker = fl.Broker.in_memory(nodes=nodes, config={name: value for name, value in settings.items() if value is not None})
        self.session = None if record is None else Path(record)
        self.listener = self.broker.listen(record=self.session)
        self.bootstrap = self.listener.bootstrap
        self.clock = self.broker.clock
        self.faults = self.listener.faults
        self.faults.record_requests()
        self._names = itertools.count(1)
        self._registry: SchemaRegistry | None = None

    @property
    def registry(self) -> SchemaRegistry:
        """A schema registry over this broker, see `fletchlog.Broker.schema_registry`; opened with the first use, closed with the broker."""
        if self._registry is None:
            self._registry = self.broker.schema_registry()
        return self._registry

    @overload
    def topic(self, name: str, /, partitions: int = 1, config: Mapping[str, Any] | None = None) -> str: ...
    @overload
    def topic(self, partitions: int = 1, name: str | None = None, config: Mapping[str, Any] | None = None) -> str: ...
    def topic(self, *given: Any, **named: Any) -> str:
        """Creates a topic and returns its name; without a name, one that is not taken.

        `topic("orders", 3)` and `topic(3, "orders")` are the same. `config` has properties of the topic.
        """
        order = ["name", "partitions", "config"] if given and isinstance(given[0], str) else ["partitions", "name", "config"]
        if len(given) > len(order):
            raise TypeError(f"topic() takes name, partitions and config, got {len(given)} arguments")
        values = dict(zip(order, given, strict=False))
        for argument, value in named.items():
            if argument not in order:
                raise TypeError(f"topic() takes name, partitions and config, not {argument}={value!r}")
            if argument in values:
                raise TypeError(f"topic() has two values for {argument}: {values[argument]!r} and {value!r}")
            values[argument] = value
        name, partitions, config = values.get("name"), values.get("partitions", 1), values.get("config")
        if not isinstance(partitions, int):
            raise TypeError(f"partitions: expected a number, got {type(partitions).__name__} {partitions!r}")
        if not isinstance(name, str | None):
            raise TypeError(f"name: expected text, got {type(name).__name__} {name!r}")
        name = name or f"topic-{next(self._names)}"
        self.broker.create_topic(name, partitions=partitions, config=dict(config or {}))
        return name

    def produce(self, topic: str, values: Iterable[bytes | str | tuple[bytes | str | None, bytes | str | None]], partition: int | None = None) -> None:
        """Writes records, each a value or a pair of key and value, and waits until they are in the log.

        Raises:
            fletchlog.errors.KafkaError: The first one that is not, 10 seconds later for example because no node leads its partition.
        """
        if isinstance(values, str | bytes | Mapping):
            example = "list(values.items())" if isinstance(values, Mapping) else f"[{values!r}]"
            raise TypeError(f"values: expected a list of values, or of pairs of key and value, got {type(values).__name__} {values!r}; write {example}")
        with fl.Producer(self.broker, _PRODUCER) as producer:
            futures = [producer.send(topic, key=key, value=value, partition=partition) for key, value in map(_pair, values)]
            producer.flush()
            for future in futures:
                future.result()

    def records(self, topic: str, **options: Any) -> pa.Table:
        """What is in a topic, as an Arrow table, partition by partition in offset order; options of `Broker.scan`."""
        return self.broker.scan(topic, **options).to_pyarrow()

    def wait_for_group(self, group_id: str, members: int | None = None, state: str | None = None, timeout: float = 10.0) -> fl.admin.GroupDescription:
        """Waits until a group is in a state, with so many members, and returns it.

        Args:
            group_id: The group.
            members: How many members it has; None: any number.
            state: Its state; None: `Stable`, or `Empty` with `members=0`.
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: It is not, after `timeout` seconds; the message says how it is.
            ValueError: Kafka has no such state.
        """
        state = state or ("Empty" if members == 0 else "Stable")
        if state not in _STATES:
            raise ValueError(f"state is {state!r}; a group is one of {', '.join(_STATES)}")
        if not isinstance(members, int | None):
            raise TypeError(f"members: expected a number, got {type(members).__name__} {members!r}")
        if members is not None and members < 0:
            raise ValueError(f"members is {members}; a group has 0 or more")
        deadline = time.monotonic() + timeout
        while True:
            group = next((self.broker.describe_group(g.group_id) for g in self.broker.groups() if g.group_id == group_id), None)
            if group is not None and group.state == state and members in (None, len(group.members)):
                return group
            if time.monotonic() >= deadline:
                found = "does not exist" if group is None else f"is {group.state} with {counted(len(group.members), 'member')}"
                wanted = "" if members is None else f" with {counted(members, 'member')}"
                raise TimeoutError(f"group {group_id} {found} after {timeout} s; wanted {state}{wanted}")
            time.sleep(0.005)

    def requests(self, **selectors: Any) -> Requests:
        """What clients asked for since the broker was opened, oldest first; selectors of `FaultPlan.requests`."""
        return self.faults.requests(**selectors)

    def move_leader(self, topic: str, partition: int, *, to: int, replicated_after_ms: int | timedelta = 0) -> None:
        """Makes a node the leader of a partition; see `Broker.move_leader`."""
        self.broker.move_leader(topic, partition, to=to, replicated_after_ms=replicated_after_ms)

    def move_coordinator(self, group_id: str | None = None, *, transactional_id: str | None = None, to: int, loading_ms: int | timedelta = 0) -> None:
        """Makes a node the coordinator of a group, or of a transactional id; see `Broker.move_coordinator`."""
        self.broker.move_coordinator(group_id=group_id, transactional_id=transactional_id, to=to, loading_ms=loading_ms)

    def stop_node(self, node: int, *, closes_after_ms: int | timedelta = 0, election_ms: int | timedelta = 0) -> None:
        """Stops a node; see `Broker.stop_node`."""
        self.broker.stop_node(node, closes_after_ms=closes_after_ms, election_ms=election_ms)

    def kill_node(self, node: int, *, detected_after_ms: int | timedelta = 0, election_ms: int | timedelta = 0) -> None:
        """Ends a node as a crash does, which the cluster detects after a time; see `Broker.kill_node`."""
        self.broker.kill_node(node, detected_after_ms=detected_after_ms, election_ms=election_ms)

    def start_node(self, node: int) -> None:
        """Starts a stopped node; see `Broker.start_node`."""
        self.broker.start_node(node)

    def describe(self) -> str:
        """Topics with their offsets, groups with their lag, what clients asked for, and their last requests, as text."""
        lines = []
        for name in self.broker.topics():
            topic = self.broker.describe_topic(name)
            ends = ", ".join(f"{p.partition}: {p.log_start_offset}..{p.high_watermark}" for p in topic.partitions)
            lines.append(f"topic {name}, offsets by partition {ends}")
        lines += [self._group(listed) for listed in self.broker.groups()]
        for row in self.listener.stats().to_pyarrow().to_pylist():
            client = row["client"] or "a client that does not say its name"
            lines.append(f"{row['requests']} x {row['api']} version {row['version']} by {client}")
        lines += self._last_requests()
        if (faults := self.faults.report()) != "no rules":
            lines.append(f"faults: {faults}")
        return "\n".join(lines)

    def _last_requests(self) -> list[str]:
        """A line for each, also for those that a rule has answered; those that arrived, where the test has ended the record."""
        now = self.clock.now_ms
        if recorded := self.faults.requests()[-_SHOWN:]:
            return [f"{(now - row.time_ms) / 1000:.3f} s ago: {_shown(row)}" for row in recorded]
        rows = self.listener.last_requests().to_pyarrow().to_pylist()
        return [f"{(now - row['time_ms']) / 1000:.3f} s ago: {row['api']} by client id {row['client_id']} at {row['address']}" for row in rows]

    def _group(self, listed: fl.admin.GroupListing) -> str:
        """A group, its members, and how many records it has not read yet; of a share group those that are not done, and which are in flight."""
        group_id = listed.group_id
        group = self.broker.describe_group(group_id)
        if listed.group_type == "share":
            from fletchlog.explain.session.live_share_group import share_group

            return "\n".join(line.strip() for line in share_group(self.broker, group_id)[0])
        lag = ", ".join(f"{tp}: {behind.lag}" for tp, behind in self.broker.lag(group_id).items()) or "no offsets committed"
        return f"group {group_id} is {group.state} with {counted(len(group.members), 'member')}, lag {lag}"

    def close(self) -> None:
        """Ends the registry, the listener and the broker. What it held is gone."""
        if self._registry is not None:
            self._registry.close()
        self.broker.close()


def _shown(row: Request) -> str:
    """A request, and what became of it where that is not an answer without an error."""
    became = [row.outcome] if row.outcome != "answered" or row.fault else []
    became += [*row.errors, *([f"rule {row.fault}"] if row.fault else [])]
    return f"{row.api} by client id {row.client_id} on connection {row.connection}" + (f": {', '.join(became)}" if became else "")


def _pair(given: Any) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record; text as UTF-8."""
    try:
        key, value = given if isinstance(given, tuple) else (None, given)
    except ValueError:
        raise TypeError(f"a record is a value or a pair of key and value, got {given!r}") from None
    return _bytes(key), _bytes(value)


def _bytes(value: bytes | str | None) -> bytes | None:
    """Text as UTF-8."""
    return value.encode() if isinstance(value, str) else value
