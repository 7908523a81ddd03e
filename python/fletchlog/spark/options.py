"""Options of the data source: Spark's kafka names, checked once when the frame is loaded."""

from __future__ import annotations

import difflib
import logging
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fletchlog._core import find_topics
from fletchlog._place import CLUSTER, STORE, Place
from fletchlog.errors import InvalidArgumentError
from fletchlog.spark import typed
from fletchlog.spark.errors import OptionError
from fletchlog.spark.limits import Earliest, Latest, Limit, check_batch, parse
from fletchlog.spark.offsets import HIGHEST, parse_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fletchlog.types import TopicPartition

log = logging.getLogger("fletchlog.spark")

# name -> default and meaning; the page of the options is made from it
KNOWN = {
    "path": (
        "",
        (
            "Directory of the log, where every executor can read it, or a place on an object store, `s3://bucket/prefix`, whose options are `store.*`. This or "
            "`kafka.bootstrap.servers`."
        ),
    ),
    "store.*": (
        "from the environment",
        "Keyword arguments of pyarrow's file system of the object store, e.g. `store.access_key`. Every executor opens the store with them.",
    ),
    "kafka.bootstrap.servers": ("", "A cluster, `h1:9092,h2:9092`. Other `kafka.*` options are properties of the clients."),
    "assign": ("", 'Partitions to read, `{"orders":[0,1]}`. One of `assign`, `subscribe` and `subscribePattern`.'),
    "subscribe": ("", "Topics to read, `orders,payments`."),
    "subscribePattern": (
        "",
        (
            "Regular expression in Java's syntax that is found in the name of a topic: `orders` also reads `orders-dlq` and `pre-orders`, `^orders$` does not. "
            "What is not supported is an error."
        ),
    ),
    "startingOffsets": (
        "batch: `earliest`, stream: `latest`",
        (
            'Where to begin: `earliest`, `latest`, or `{"orders":{"0":23,"1":-2},"payments":"latest"}` (-2 earliest, -1 latest). '
            "A stream that has a checkpoint continues from it."
        ),
    ),
    "startingOffsetsByTimestamp": ("", 'Where to begin, by time in ms since 1970: `{"orders":{"0":1700000000000}}`. Goes before `startingOffsets`.'),
    "startingTimestamp": ("", "The same time for all partitions. Goes before both."),
    "startingOffsetsByTimestampStrategy": ("`error`", "A partition without a record at or after that time: `error`, or `latest`."),
    "endingOffsets": ("`latest`", "Where a batch ends, like `startingOffsets`; -2 is not allowed."),
    "endingOffsetsByTimestamp": ("", "Where a batch ends, by time."),
    "endingTimestamp": ("", "The same time for all partitions."),
    "failOnDataLoss": (
        "`true`",
        (
            "Records that are gone (deleted, retention, a new topic of the same name) end the query; `false`: a warning. A partition that a stream no longer "
            "sees stays at its offset in the checkpoint, and is read from there when it is back."
        ),
    ),
    "maxOffsetsPerTrigger": ("", "Maximum number of offsets in a micro-batch, split in proportion to the backlog of each partition."),
    "minOffsetsPerTrigger": ("", "Wait until this many offsets are there, at most for `maxTriggerDelay`."),
    "maxTriggerDelay": ("`15m`", "How long `minOffsetsPerTrigger` may wait."),
    "minPartitions": ("", "Split partitions of the log until there are at least this many tasks."),
    "maxPartitions": ("", "Pack small neighbours into one task until there are at most this many tasks. Spark's kafka source does not have it."),
    "maxRecordsPerPartition": ("", "Split partitions of the log into tasks of at most this many offsets."),
    "includeHeaders": ("`false`", "Adds the column `headers`."),
    **typed.known(reading=True),
    "kafka.isolation.level": ("`read_uncommitted`", "`read_committed` leaves out the records of open and aborted transactions."),
    "kafkaConsumer.pollTimeoutMs": ("`120000`", "How long a task waits for records of a cluster."),
    "fetchOffset.numRetries": ("`3`", "How often a cluster is asked for topics and offsets before what it does not show is an error."),
    "fetchOffset.retryIntervalMs": ("`1000`", "How long to wait in between."),
}
# They steer how Spark's kafka source uses its consumers; they are accepted and do nothing.
WITHOUT_EFFECT = ("groupIdPrefix",)
# Refused by Spark's kafka source too, for the same reasons.
REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.key.deserializer": "keys are bytes; set key.format, or cast the column",
    "kafka.value.deserializer": "values are bytes; set value.format, or cast the column",
    "kafka.enable.auto.commit": "the checkpoint of the query keeps the offsets",
    "kafka.interceptor.classes": "interceptors could change the records",
    **dict.fromkeys(
        ("kafka.share.acknowledgement.mode", "kafka.share.acquire.mode", "sharegroup"),
        "a share group cannot be replayed: what a failed task had acquired comes again to any member, so no batch could be repeated exactly. Read "
        "the topic, or read as a share group with fl.ShareConsumer",
    ),
}
DEFAULT_MAX_TRIGGER_DELAY = "15m"
# What Spark adds to the options of a table, before it asks for the columns.
_OF_TABLES = {"provider", "owner"}
NO_TABLES = (
    "A table (`create table .. using`) cannot be of this format: Spark hands the options of a table to no data source of Python. "
    "Use `create temporary view .. using .. options (..)`"
)
_STORE = "store."
# As Spark's kafka source, which takes it from spark.network.timeout.
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_FETCH_ATTEMPTS = 3
DEFAULT_FETCH_INTERVAL_MS = 1_000

_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Assign:
    """Exactly these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of the topics in whose name the pattern is found."""

    pattern: str


Strategy = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True)
class SourceOptions:
    """Checked options; those that only a batch or only a stream has are read by `batch_limits` and `stream_start`."""

    path: str | None = field(repr=False)  # a URI may have a password; `source` shows it without
    source: str
    store: Mapping[str, str] | None = field(repr=False)  # None: not on an object store
    client: Mapping[str, Any] = field(repr=False)  # may have passwords, and `given` too
    poll_timeout_ms: int
    fetch_attempts: int
    fetch_interval_ms: int
    strategy: Strategy
    given: Mapping[str, str] = field(repr=False)
    fail_on_data_loss: bool
    include_headers: bool
    typed: tuple[typed.Typed, ...]
    isolation_level: str
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: float
    columnar: bool = False  # Java reads, and not Python

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Checks everything that does not depend on batch or stream.

        Raises:
            OptionError: What is wrong and what to write instead.
        """
        given = {name.lower(): value for name, value in options.items()}
        _check_names(given)
        place, source = target(given)
        isolation = given.get("kafka.isolation.level", "read_uncommitted").lower()
        if isolation not in {"read_uncommitted", "read_committed"}:
            raise OptionError(f"option kafka.isolation.level: expected read_uncommitted or read_committed, got {isolation}")
        attempts = _whole(given, "fetchOffset.numRetries", DEFAULT_FETCH_ATTEMPTS)
        parsed = cls(
            path=None if place is None else place.name,
            source=source,
            store=storage_options(given) if place is not None and place.kind == STORE else None,
            client={name[6:]: value for name, value in given.items() if name.startswith("kafka.") and name != "kafka.bootstrap.servers"},
            poll_timeout_ms=_whole(given, "kafkaConsumer.pollTimeoutMs", DEFAULT_POLL_TIMEOUT_MS),
            fetch_attempts=attempts if place is None else 1,  # what a directory does not have now is not on its way
            fetch_interval_ms=_whole(given, "fetchOffset.retryIntervalMs", DEFAULT_FETCH_INTERVAL_MS, lowest=0),
            strategy=_strategy(given),
            given=given,
            fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
            include_headers=boolean(given, "includeHeaders", default=False),
            typed=typed.parse(given, reading=True),
            isolation_level=isolation,
            min_partitions=_positive(given, "minPartitions"),
            max_partitions=_positive(given, "maxPartitions"),
            max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_positive(given, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=duration_ms(given, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY),
        )
        least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError(f"option minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")
        if parsed.min_partitions is not None and parsed.max_partitions is not None and parsed.min_partitions > parsed.max_partitions:
            raise OptionError(f"option minPartitions ({parsed.min_partitions}) is higher than maxPartitions ({parsed.max_partitions})")
        parse("starting", given, Earliest())
        parse("ending", given, Latest())
        return parsed

    @property
    def only_topic(self) -> str | None:
        """The topic that is read, if it is one by its name."""
        match self.strategy:
            case Subscribe(topics) if len(topics) == 1:
                return topics[0]
            case Assign(partitions) if len({tp.topic for tp in partitions}) == 1:
                return next(iter(partitions)).topic
        return None

    def batch_limits(self) -> tuple[Limit, Limit]:
        """Start and end of a batch query.

        Raises:
            OptionError: A combination that a batch query cannot mean.
        """
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name.lower() in self.given:
                log.warning("option %s is ignored in batch queries", name)
        start, end = parse("starting", self.given, Earliest()), parse("ending", self.given, Latest())
        check_batch(start, end)
        return start, end

    def stream_start(self) -> Limit:
        """Start of a new streaming query.

        Raises:
            OptionError: An end was given.
        """
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in self.given:
                raise OptionError(f"option {name} is not valid in a streaming query: a stream has no end")
        return parse("starting", self.given, Latest())


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _check_names(given: Mapping[str, str]) -> None:
    if _OF_TABLES & given.keys():
        raise OptionError(NO_TABLES)
    known = {name.lower() for name in KNOWN}
    ignored = {name.lower() for name in WITHOUT_EFFECT}
    for name in given:
        if name in known or name.startswith((_STORE, *typed.OF_REGISTRY)):
            continue
        if name in REFUSED:
            raise OptionError(f"option {name} is refused: {REFUSED[name]}")
        if name in ignored:
            log.info("option %s has no effect", name)
            continue
        suggestion = nearest(name, KNOWN)
        if name.startswith("kafka.") and ("kafka.bootstrap.servers" in given or not suggestion):
            if "kafka.bootstrap.servers" not in given:
                log.warning("option %s configures a Kafka client; it has no effect on a directory", name)
            continue
        raise OptionError(f"unknown option {name} for format fletchlog{suggestion}")
    check_properties("Consumer", {name[6:]: value for name, value in given.items() if name.startswith("kafka.") and name not in known})


def check_properties(client: Literal["Consumer", "Producer"], properties: Mapping[str, str]) -> None:
    """Refuses what a client would refuse, before one is made.

    Raises:
        OptionError: A property that no client knows, or a value that it does not take.
    """
    import fletchlog as fl

    if properties:
        try:
            with fl.Broker.in_memory() as broker, getattr(fl, client)(broker, properties):
                pass
        except fl.errors.ConfigError as error:
            raise OptionError(f"options kafka.*: {error}") from None


def _strategy(given: Mapping[str, str]) -> Strategy:
    names = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in given]
    if len(names) != 1:
        found = f"found {' and '.join(names)}" if names else "found none"
        raise OptionError(f"exactly one of the options assign, subscribe and subscribePattern must be given, {found}")
    value = given[names[0].lower()].strip()
    match names[0]:
        case "assign":
            return Assign(parse_partitions("assign", value))
        case "subscribe":
            topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
            if not topics:
                raise OptionError("option subscribe names no topic; write e.g. orders or orders,payments")
            return Subscribe(topics)
    if not value:
        raise OptionError("option subscribePattern is empty; write a regular expression for names of topics")
    try:
        find_topics(value, [])
    except InvalidArgumentError as error:
        raise OptionError(f"option subscribePattern: {error}") from None
    return SubscribePattern(value)


def target(given: Mapping[str, str]) -> tuple[Place | None, str]:
    """The directory or store, or None for a cluster, and what is read or written as one text.

    Raises:
        OptionError: Neither or both are given, or the place cannot be used.
    """
    servers = given.get("kafka.bootstrap.servers")
    if not given:
        raise OptionError(f"no options, at least path or kafka.bootstrap.servers must be given. {NO_TABLES}")
    if ("path" in given) == (servers is not None):
        found = "found none" if servers is None else "found both"
        raise OptionError(
            f"exactly one of the options path and kafka.bootstrap.servers must be given, {found}: a directory, e.g. .option('path', 'data/'), or a cluster"
        )
    place = place_of("path", given["path"]) if servers is None else None
    if any(name.startswith(_STORE) for name in given) and (place is None or place.kind != STORE):
        found = f"{servers} is a cluster" if place is None else f"{place} is a directory"
        raise OptionError(f"options store.* are for an object store, e.g. .option('path', 's3://bucket/prefix'); {found}")
    return place, f"kafka://{servers.strip()}" if servers is not None else str(place)


def place_of(option: str, text: str) -> Place:
    """What an option names, by the rule of `Broker`. A directory has its path from `/` on, as tasks in other working directories see it.

    Raises:
        OptionError: It is empty, a cluster or no URI.
    """
    text = text.strip()
    if not text:
        raise OptionError(f"option {option} is empty: it names a directory, e.g. .option('{option}', 'data/')")
    try:
        place = Place(text)
    except InvalidArgumentError as error:
        raise OptionError(f"option {option}: {error}") from None
    if place.kind == CLUSTER:
        raise OptionError(f"option {option}: {place} is a cluster; its servers are given as the option kafka.bootstrap.servers")
    return place if place.kind == STORE else Place(os.path.abspath(place))  # noqa: PTH100 - must not resolve links


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of the object store."""
    return {name.removeprefix(_STORE): value for name, value in given.items() if name.startswith(_STORE)}


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """`true` or `false`, in any letter case.

    Raises:
        OptionError: It is something else.
    """
    value = given.get(name.lower(), str(default)).strip().lower()
    if value not in {"true", "false"}:
        raise OptionError(f"option {name}: expected true or false, got {value}")
    return value == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    return _whole(given, name, 0) if name.lower() in given else None


def _whole(given: Mapping[str, str], name: str, default: int, *, lowest: int = 1) -> int:
    value = given.get(name.lower(), str(default))
    try:
        number = int(value.strip())
    except ValueError:
        number = -1
    if not lowest <= number <= HIGHEST:
        raise OptionError(f"option {name}: expected a {'positive ' if lowest else ''}whole number{'' if lowest else ' from 0'}, got {value}")
    return number


def duration_ms(given: Mapping[str, str], name: str, default: str) -> float:
    """An option such as `500ms` or `15m`, in milliseconds.

    Raises:
        OptionError: It is no duration.
    """
    value = given.get(name.lower(), default).strip().lower()
    match = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", value)
    if match is None or (match[2] or "ms") not in _MS:
        raise OptionError(f"option {name}: expected a duration such as 500ms, 10s, 15m, 2h or 1d, got {value}")
    return int(match[1]) * _MS[match[2] or "ms"]
