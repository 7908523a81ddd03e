"""For tests of programs: what goes wrong between clients and a broker, by rules or from a seed; and what clients asked for.

A `FaultPlan` is that of a listener (`broker.listen().faults`), for clients in any language; of a proxy (`cluster.proxy().faults`); of the fixture
(`kafka.faults`); or one that `FaultPlan()` makes for clients in this process: `Producer(broker, faults=plan)`, and so for a `Consumer` and the
clients of asyncio.

The pytest fixtures `kafka`, `kafka_session` and `kafka_cluster` are in the plug-in `pytest_fletchlog`, which pytest finds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, overload

from fletchlog._core import FaultRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from os import PathLike

    import pyarrow as pa

__all__ = ["FaultPlan", "FaultRule", "FaultSelector", "ProducedBatch", "Request", "Requests"]

# Longest wait for a rule to hold a request, s.
LONGEST_WAIT_S = 86_400
When: TypeAlias = Literal["before", "after"]
RandomKind: TypeAlias = Literal["error", "lose_response", "close", "delay"]


class ProducedBatch(NamedTuple):
    """A batch of a Produce request, and what the broker said.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        producer_id: The producer's id; None: the producer is not idempotent.
        producer_epoch: The producer's epoch; None: the same.
        base_sequence: Sequence of its first record; None: the same.
        records: How many records it has.
        error: Name of the error in the response, also in one that a rule discards; None: no error, or no response.
        base_offset: Offset of its first record in the response; None: no response, or an error.
    """

    topic: str
    partition: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    records: int
    error: str | None
    base_offset: int | None


class Request(NamedTuple):
    """A request of a client, and what became of it.

    Those of a client in this process that has the plan as `faults=` are recorded too. Their version is the newest that this client uses, their
    sizes are those of that version, whether or not the bytes exist; each connection to a node, and to a coordinator, has a number.

    Attributes:
        number: From 1, over all connections, in the order of arrival.
        time_ms: When it arrived, ms since 1970, by the broker's clock; by the machine's in a plan that `FaultPlan()` has made.
        connection: Number of its connection, from 1.
        node: Id of the node that was asked.
        api: Kafka's name of the API, such as "Fetch".
        version: Version of the API.
        client_id: The client's `client.id`; empty: none.
        correlation_id: The client's own number of the request.
        request_bytes: Its size.
        partitions: Its partitions, those of its fetch session too, as `(topic, partition)`.
        topics: Its topics.
        groups: Its groups.
        transactional_ids: Its transactional ids.
        duration_ms: Time until its response was ready, ms; None: it has none yet.
        response_bytes: Size of its response; None: none was sent.
        errors: Names of the errors in the response, each once.
        outcome: "pending", "answered", "without response" (acks=0), "response lost", "response cut", "black hole", "closed" (by the broker),
            "client gone" or "connection lost" (of a client in this process: an earlier request ended the connection).
        fault: The rule that applied to it: its name, or the rule in JSON; None: none.
        after: Of a client in this process: number of the Produce whose turn was last when this request was sent; 0: none. So it says what a
            producer with several requests in flight could know.
        batches: The batches of a Produce, in its order.
    """

    number: int
    time_ms: int
    connection: int
    node: int
    api: str
    version: int
    client_id: str
    correlation_id: int
    request_bytes: int
    partitions: list[tuple[str, int]]
    topics: list[str]
    groups: list[str]
    transactional_ids: list[str]
    duration_ms: int | None
    response_bytes: int | None
    errors: list[str]
    outcome: str
    fault: str | None
    after: int
    batches: list[ProducedBatch]

    def as_dict(self) -> dict[str, Any]:
        """Its fields by name; each batch is a dict as well."""
        return self._asdict() | {"batches": [batch._asdict() for batch in self.batches]}


class Requests(Sequence[Request]):
    """Requests in the order of their arrival."""

    def __init__(self, rows: Iterable[Request]) -> None:
        """Of these rows."""
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, at: int) -> Request: ...
    @overload
    def __getitem__(self, at: slice) -> Requests: ...
    def __getitem__(self, at: int | slice) -> Request | Requests:
        """One row, or those of a slice."""
        return Requests(self._rows[at]) if isinstance(at, slice) else self._rows[at]

    def __len__(self) -> int:
        """How many."""
        return len(self._rows)

    def __repr__(self) -> str:
        """A line for each, for the report of a failed assertion."""
        lines = [
            f"{row.number}: {row.api} {row.version} by {row.client_id or 'a client without id'} on connection {row.connection}: {row.outcome}"
            + (f" {', '.join(row.errors)}" if row.errors else "")
            + (f", fault {row.fault}" if row.fault else "")
            for row in self._rows
        ]
        return "\n".join([f"<{len(self._rows)} requests>", *lines])

    def to_pyarrow(self) -> pa.Table:
        """A table with a row for each, whose columns are the fields of `Request`: `partitions` and `batches` are lists of structs."""
        import pyarrow as pa

        texts = pa.list_(pa.string())
        types = {
            "number": pa.uint64(),
            "time_ms": pa.int64(),
            "connection": pa.uint64(),
            "node": pa.int32(),
            "api": pa.string(),
            "version": pa.int16(),
            "client_id": pa.string(),
            "correlation_id": pa.int32(),
            "request_bytes": pa.int64(),
            "partitions": pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
            "topics": texts,
            "groups": texts,
            "transactional_ids": texts,
            "duration_ms": pa.int64(),
            "response_bytes": pa.int64(),
            "errors": texts,
            "outcome": pa.string(),
            "fault": pa.string(),
            "after": pa.uint64(),
            "batches": pa.list_(
                pa.struct(
                    [
                        ("topic", pa.string()),
                        ("partition", pa.int32()),
                        ("producer_id", pa.int64()),
                        ("producer_epoch", pa.int16()),
                        ("base_sequence", pa.int32()),
                        ("records", pa.int32()),
                        ("error", pa.string()),
                        ("base_offset", pa.int64()),
                    ]
                )
            ),
        }
        rows = [row.as_dict() | {"partitions": [{"topic": topic, "partition": partition} for topic, partition in row.partitions]} for row in self._rows]
        return pa.Table.from_pylist(rows, schema=pa.schema(types))


class FaultRule:
    """A rule that was added: how far it is."""

    def __init__(self, rules: FaultRules, number: int) -> None:
        """The rule with this number, from 1 in the order in which they were added."""
        self._rules = rules
        self.number = number

    def _report(self) -> tuple[int, str, int, int, int, bool, bool]:
        return self._rules.report()[self.number - 1]

    @property
    def rule(self) -> dict[str, Any]:
        """The rule as it is written in a plan."""
        import json

        found: dict[str, Any] = json.loads(self._report()[1])
        return found

    @property
    def matched(self) -> int:
        """How many requests matched its selectors."""
        return self._report()[2]

    @property
    def applied(self) -> int:
        """To how many requests it applied."""
        return self._report()[3]

    @property
    def held(self) -> int:
        """How many requests it holds now."""
        return self._report()[4]

    @property
    def is_optional(self) -> bool:
        """Whether it may never apply."""
        return self._report()[5]

    @property
    def is_cleared(self) -> bool:
        """Whether it was ended by `clear`."""
        return self._report()[6]

    def wait(self, timeout: float = 10.0) -> None:
        """Waits until it holds a request.

        Args:
            timeout: Seconds to wait at most, 0 or more.

        Raises:
            fletchlog.errors.InvalidArgumentError: The rule is not one of `hold()`, which alone holds requests.
            TimeoutError: It holds none after that time; the message says how many requests matched.
        """
        self._check_holds()
        if not self._rules.wait(self.number, _wait_ms(timeout)):
            raise TimeoutError(f"no request is held after {timeout} s by the rule {self.rule}: {self.matched} requests matched it")

    def release(self) -> None:
        """Carries out what it holds, in the order of arrival. From now on it holds nothing.

        Raises:
            fletchlog.errors.InvalidArgumentError: The rule is not one of `hold()`, which alone holds requests.
        """
        self._check_holds()
        self._rules.release(self.number)

    def _check_holds(self) -> None:
        if not self.rule.get("hold"):
            from fletchlog.errors import InvalidArgumentError

            raise InvalidArgumentError(f"rule {self.number} holds no request: only a rule with `hold` does; clear() ends this one")

    def clear(self) -> None:
        """Ends the rule. What it holds is carried out."""
        self._rules.clear(self.number)

    def __repr__(self) -> str:
        """The rule, and how far it is."""
        return f"<fletchlog.testing.FaultRule {self.rule}: matched {self.matched}, applied {self.applied}>"


class FaultSelector:
    """Which requests; one of its methods says what happens to them, and adds the rule."""

    def __init__(self, rules: FaultRules, keys: Mapping[str, Any], when: Callable[[dict[str, Any]], object] | None) -> None:
        """These keys of a rule."""
        self._rules = rules
        self._keys = {key: value for key, value in keys.items() if value is not None}
        _check_types(self._keys)
        if when is not None and not callable(when):
            raise TypeError(f"when must be a function of the request, not {when!r}")
        self._when = when
        self._has_action = False

    def _add(self, **action: Any) -> FaultRule:
        import json

        self._has_action = True
        _check_types(action)
        (number,) = self._rules.add(json.dumps({"rules": [self._keys | action]}), self._when)
        return FaultRule(self._rules, number)

    def error(self, error: str | int, *, handled: bool = False, log_start_offset: int | None = None) -> FaultRule:
        """The response has an error.

        It is in the partitions that `topic` and `partition` select, and the others are carried out; without these it is the error of the whole
        request, which is not carried out.

        Args:
            error: Kafka's name or code, such as "NOT_LEADER_OR_FOLLOWER".
            handled: The request is carried out all the same: a record is written, and the client does not know it.
            log_start_offset: Of Produce: the start of the log in the response, by which a producer judges UNKNOWN_PRODUCER_ID. None: -1.
        """
        beside = {"handled": handled or None, "log_start_offset": log_start_offset}
        return self._add(error=error, **{key: value for key, value in beside.items() if value is not None})

    def lose_response(self) -> FaultRule:
        """The request is carried out, its response never arrives: the connection is closed."""
        return self._add(lose_response=True)

    def close(self, when: When = "before") -> FaultRule:
        """The connection is closed before, or after, the request is carried out; without a response."""
        return self._add(close=when)

    def black_hole(self, when: When = "before") -> FaultRule:
        """No response comes, and the connection stays open; "after": but the request is carried out."""
        return self._add(black_hole=when)

    def delay(self, delay_ms: int | timedelta) -> FaultRule:
        """The request is carried out later, even if its client has closed the connection by then; ms of the broker's clock.

        Of a client in this process: ms of the machine, and a request whose connection is closed is discarded. For another action after a delay
        give `delay_ms` to `on`.
        """
        if "delay_ms" in self._keys:
            from fletchlog.errors import InvalidArgumentError

            raise InvalidArgumentError("delay: `on(delay_ms=...)` delays another action, such as `error`; give the time to delay() alone")
        return self._add(delay_ms=_ms(delay_ms))

    def delay_response(self, delay_ms: int | timedelta) -> FaultRule:
        """The response is sent later; ms of the broker's clock."""
        return self._add(delay_response_ms=_ms(delay_ms))

    def hold(self) -> FaultRule:
        """The request waits until `release()`: a barrier.

        It is carried out then even if its client has closed the connection; that of a client in this process is discarded then.
        """
        return self._add(hold=True)

    def throttle(self, throttle_time_ms: int | timedelta) -> FaultRule:
        """The response asks the client to pause, as under a quota."""
        return self._add(throttle_time_ms=_ms(throttle_time_ms))

    def cut(self, after_bytes: int) -> FaultRule:
        """Only so many bytes of the response are sent, the four of its size included; then the connection is closed."""
        return self._add(cut_after_bytes=after_bytes)

    def wrong_correlation_id(self) -> FaultRule:
        """The response has the correlation id of another request."""
        return self._add(wrong_correlation_id=True)

    def slow(self, bytes_per_second: int) -> FaultRule:
        """The response comes in pieces, at so many bytes a second."""
        return self._add(slow_bytes_per_second=bytes_per_second)

    def refuse_connection(self) -> FaultRule:
        """A new connection is closed at once. Only `node` and `connection` select connections."""
        return self._add(refuse_connection=True)

    def tls_failure(self) -> FaultRule:
        """A new connection gets a TLS alert (`handshake_failure`) and is closed."""
        return self._add(tls_failure=True)

    def __repr__(self) -> str:
        """What it selects."""
        return f"<fletchlog.testing.FaultSelector {self._keys}>"


class FaultPlan:
    """What goes wrong between clients and a broker, and what these asked for. Thread-safe.

        kafka.faults.on(api="Produce", topic="orders", nth=3).error("NOT_ENOUGH_REPLICAS")
        kafka.faults.on(api="OffsetCommit", group="billing").lose_response()
        gate = kafka.faults.on(api="JoinGroup").hold()

        plan = fl.testing.FaultPlan()
        plan.on(api="Produce", nth=1).lose_response()
        producer = fl.Producer(broker, faults=plan)

    Every rule counts the requests that match it. To a request the first rule applies, in the order in which they were added, whose turn it is.

    `Producer`, `Consumer`, `AsyncProducer` and `AsyncConsumer` take a plan as `faults=`, also that of a listener; several clients may share one. Their
    requests meet the rules when they are sent: also those that a connection takes with it that an earlier request has ended. Produce requests to
    a broker in this process are held until the producer has nothing more to send, then each has its turn: so a run is a function of
    configuration, calls and rules, not of timing. Rules about bytes (`cut`, `slow`, `wrong_correlation_id`, `refuse_connection`, `tls_failure`) are refused
    while such a client has the plan. Heartbeats that a member of a cluster's group sends between two polls do not meet them.
    """

    def __init__(self, rules: FaultRules | None = None) -> None:
        """For clients in this process, whose requests are recorded from the start. `rules`: those of a listener or of a proxy."""
        self._rules = FaultRules() if rules is None else rules
        self._selectors: list[FaultSelector] = []

    def on(
        self,
        *,
        api: str | Sequence[str] | None = None,
        version: int | tuple[int, int] | None = None,
        client_id: str | None = None,
        connection: int | None = None,
        node: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        nth: int | None = None,
        times: int | None = None,
        delay_ms: int | timedelta | None = None,
        when: Callable[[dict[str, Any]], object] | None = None,
        name: str | None = None,
        optional: bool = False,
    ) -> FaultSelector:
        """Selects requests. What is not given selects every one; texts may have `*` for any characters.

        Args:
            api: Kafka's name of the API, or several.
            version: Version of the API, or the first and the last one.
            client_id: The client's `client.id`.
            connection: Number of the connection: the first one of a listener is 1.
            node: Id of the node that is asked.
            topic: A topic of the request; topics by id too, and those of a fetch session.
            partition: A partition of the request.
            group: A group of the request.
            transactional_id: A transactional id of the request.
            nth: The first match that the rule applies to, from 1. With it the rule applies once, unless `times` says more.
            times: To how many requests it applies at most. None: until it is cleared.
            delay_ms: How long the request waits before the action, ms.
            when: Called with each request that the rest selects, as a dict of the first fields of `Request`; false: it does not match. It runs in the
                listener's thread, or in the client's that sends, which waits for it; so it must not wait for a request, or set the clock ahead.
            name: Its name in reports.
            optional: A rule that never applied fails the test of the fixture, unless this is True.

        Raises:
            fletchlog.errors.InvalidArgumentError: By the method that adds the rule: a name that Kafka does not have, a number out of range.
        """
        keys = {
            "api": _names(api, "api"),
            "version": list(version) if isinstance(version, tuple) else version,
            "client_id": client_id,
            "connection": connection,
            "node": node,
            "topic": topic,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "nth": nth,
            "times": times,
            "delay_ms": None if delay_ms is None else _ms(delay_ms),
            "name": name,
            "optional": optional or None,
        }
        selector = FaultSelector(self._rules, keys, when)
        self._selectors.append(selector)
        return selector

    def load(self, plan: Mapping[str, Any] | str | PathLike[str]) -> list[FaultRule]:
        """Adds the rules of a plan: a mapping, its text in JSON, such as a report has it, or a file of JSON or TOML.

        A plan is `{"rules": [...]}`, in TOML `[[rules]]`; a rule has the names of `on` as keys, and one action: `error` (with `handled` and
        `log_start_offset`), `close`, `lose_response`, `black_hole`, `delay_ms` (alone, or beside another action), `delay_response_ms`, `hold`,
        `throttle_time_ms`, `cut_after_bytes`, `wrong_correlation_id`, `slow_bytes_per_second`, `refuse_connection`, `tls_failure`. `random` is an
        object of `seed`, `rate`, `kinds` and `api`. `docs/reference/fault-plan.schema.json` says the same as a JSON Schema.

        Raises:
            fletchlog.errors.InvalidArgumentError: A rule that cannot be understood: which one, and what is possible. Nothing is added.
            OSError: The file cannot be read.
        """
        import json

        text = json.dumps(plan_of(plan))
        return [FaultRule(self._rules, number) for number in self._rules.add(text)]

    def random(self, *, seed: int, rate: float, kinds: Sequence[RandomKind] | None = None, api: str | Sequence[str] | None = None) -> None:
        """Random faults from now on, where no rule applies. ApiVersions and the messages of SASL are spared.

        What happens to a request is a function of the seed, its client id, its API, and how many requests of the API this client has sent: never of
        time. `drawn()` is the plan that it amounts to.

        Args:
            seed: The seed.
            rate: How many requests fail, 0 to 1.
            kinds: Which kinds of faults; all four if not given. Errors are ones after which clients repeat the request, delays are 1 to 50 ms.
            api: Only these APIs.
        """
        import json

        given = {"seed": seed, "rate": rate, "kinds": [kinds] if isinstance(kinds, str) else kinds and list(kinds), "api": _names(api, "api")}
        _check_types(given)
        self._rules.add(json.dumps({"random": {key: value for key, value in given.items() if value is not None}}))

    @property
    def rules(self) -> list[FaultRule]:
        """All rules that were added, cleared ones too."""
        return [FaultRule(self._rules, report[0]) for report in self._rules.report()]

    def _progress(self) -> list[dict[str, Any]]:
        """What each rule's properties are, of one moment."""
        import json

        keys = ("number", "rule", "matched", "applied", "held", "is_optional", "is_cleared")
        return [dict(zip(keys, (number, json.loads(rule), *rest), strict=True)) for number, rule, *rest in self._rules.report()]

    def drawn(self) -> dict[str, Any]:
        """The plan that random faults have amounted to: it does the same without the seed.

        Its rules are optional, since a client may send a request less the next time.
        """
        import json

        return {"rules": [json.loads(rule) for rule in self._rules.drawn()]}

    def never_applied(self) -> list[FaultRule]:
        """Rules that have not applied to any request, but those that are optional or cleared."""
        return [FaultRule(self._rules, number) for number, _, _, applied, _, optional, cleared in self._rules.report() if not (applied or optional or cleared)]

    def without_action(self) -> list[FaultSelector]:
        """Selectors of which no method was called, such as `error`: they change nothing. A test of the fixture fails for them."""
        return [selector for selector in self._selectors if not selector._has_action]  # noqa: SLF001 - of this module

    def clear(self) -> None:
        """Ends every rule, and random faults, whose `drawn()` is forgotten. What rules hold is carried out."""
        self._selectors.clear()
        self._rules.clear()

    def report(self) -> str:
        """A line for each rule that was not cleared: to how many requests it applied; and the seed of random faults with the plan that it amounted to."""
        import json

        lines = [
            f"rule {number} {rule}: matched {matched}, applied {applied}" + (f", holds {held}" if held else "")
            for number, rule, matched, applied, held, _, cleared in self._rules.report()
            if not cleared
        ]
        if (seed := self._rules.seed()) is not None:
            drawn = self.drawn()
            lines.append(f"random faults of seed {seed} were {f'this plan: {json.dumps(drawn)}' if drawn['rules'] else 'none'}")
        return "\n".join(lines) or "no rules"

    def record_requests(self, record: bool = True) -> None:
        """Records requests from now on, the last 100,000 of them, or ends that. What was recorded is forgotten."""
        self._rules.record(record)

    def requests(
        self,
        *,
        api: str | Sequence[str] | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        node: int | None = None,
        connection: int | None = None,
    ) -> Requests:
        """What clients asked for, oldest first, since `record_requests()`; the fixture and `FaultPlan()` record from the start.

        Every argument selects, as in `on`. Of the clients in this process those are recorded that have the plan as `faults=`.

        Raises:
            fletchlog.errors.InvalidArgumentError: Kafka has no API of that name.
        """
        apis = [api] if isinstance(api, str) else api
        for name in apis or ():
            self._rules.check_api(name)
        numbers = {"partition": partition, "node": node, "connection": connection}
        for key, number in numbers.items():
            if number is not None and not isinstance(number, int):
                raise TypeError(f"{key} must be a number, not {number!r}")

        def selected(row: Request) -> bool:
            matches = [
                apis is None or row.api in apis,
                client_id is None or fnmatchcase(row.client_id, _pattern(client_id)),
                node is None or row.node == node,
                connection is None or row.connection == connection,
                _any(topic, row.topics),
                _any(group, row.groups),
                _any(transactional_id, row.transactional_ids),
                partition is None or any(found == partition and _any(topic, [name]) for name, found in row.partitions),
            ]
            return all(matches)

        rows = (
            Request._make([*head, *names, *outcome, [ProducedBatch(*batch) for batch in batches]])
            for head, names, (*outcome, batches) in self._rules.requests()
        )
        return Requests(row for row in rows if selected(row))

    @contextmanager
    def collect_sends(self) -> Iterator[None]:
        """A context in which producers in this process that have the plan send nothing: the records of all `send` calls in it are there at once.

        So which records share a request does not depend on timing.
        """
        self._rules.collect_sends()
        try:
            yield
        finally:
            self._rules.resume_sends()

    def __repr__(self) -> str:
        """Its report."""
        return f"<fletchlog.testing.FaultPlan: {self.report()}>"


def plan_of(plan: Mapping[str, Any] | str | PathLike[str]) -> dict[str, Any]:
    """A plan as a dict: a mapping, its text in JSON, or what a file of JSON (`.json`) or TOML has."""
    import os
    from collections.abc import Mapping
    from pathlib import Path

    if isinstance(plan, Mapping):
        return dict(plan)
    if not isinstance(plan, str | os.PathLike):
        raise TypeError(f"a plan is a mapping with `rules`, its text in JSON, or the path of a file, not {type(plan).__name__}")
    import json
    import tomllib

    from fletchlog.errors import InvalidArgumentError

    is_text = isinstance(plan, str) and plan.lstrip().startswith("{")
    name, is_json = ("the text", True) if is_text else (str(plan), Path(plan).suffix == ".json")
    text = str(plan) if is_text else Path(plan).read_text(encoding="utf-8")
    try:
        found = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} is no {'JSON' if is_json else 'TOML'}: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{name} is no plan: a plan is an object with `rules`")
    return found


def _pattern(glob: str) -> str:
    """For fnmatch, which knows more wildcards than `*`."""
    return "".join(f"[{character}]" if character in "?[" else character for character in glob)


def _any(glob: str | None, texts: Iterable[str]) -> bool:
    return glob is None or any(fnmatchcase(text, _pattern(glob)) for text in texts)


def _names(names: str | Sequence[str] | None, key: str) -> str | list[str] | None:
    if names is None or isinstance(names, str):
        return names
    if not isinstance(names, Sequence):
        raise TypeError(f"{key} must be a name or several, not {names!r}")
    return list(names)


def _check_types(keys: Mapping[str, object]) -> None:
    """Refuses what JSON has no value for."""
    for key, value in keys.items():
        if not isinstance(value, str | int | float | list | None):
            raise TypeError(f"{key} must be a text or a number, not {value!r}")


def _wait_ms(timeout: float) -> int:
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not 0 <= timeout <= LONGEST_WAIT_S:
        from fletchlog.errors import InvalidArgumentError

        raise InvalidArgumentError(f"timeout must be from 0 to {LONGEST_WAIT_S} seconds, not {timeout!r}")
    return round(timeout * 1000)


def _ms(duration: int | timedelta) -> int:
    """Milliseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return duration


def Faults(*_arguments: object, **_keywords: object) -> NoReturn:  # noqa: N802 - the name of a class that there was
    """There is one class for all faults, `FaultPlan`.

    Raises:
        fletchlog.errors.InvalidArgumentError: Always; it has the word of `FaultPlan` for each of those that `Faults` had.
    """
    from fletchlog.errors import InvalidArgumentError

    raise InvalidArgumentError(
        "fletchlog.testing.Faults is now FaultPlan: plan = FaultPlan(); plan.on(api='Produce', nth=N).ACTION; Producer(..., faults=plan). "
        "ACTION for request N of script={N: ...}: lost-ack is lose_response(); disconnect is close(); refused:CODE is error(CODE), "
        "refused:CODE:START is error(CODE, log_start_offset=START), refused:CODE@P is on(..., partition=P).error(CODE); "
        "appended-refused:CODE is error(CODE, handled=True); drop is black_hole(); drop-appended is black_hole('after'); "
        "late:MS is delay_response(MS); wait:MS/ok is delay(MS), wait:MS/ACTION is on(..., delay_ms=MS).ACTION. "
        "seed, lost_ack, refused and disconnect are plan.random(seed=..., rate=..., api='Produce', kinds=['lose_response', 'error', 'close']). "
        "held() is collect_sends(); log() is requests(api='Produce'), where batches has producer ids, sequences and offsets"
    )
