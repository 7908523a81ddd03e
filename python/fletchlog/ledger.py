"""What a copy or a Spark sink remembers of how far it is: a record beside its rows, which does not expire.

```text
topic      __fletchlog_ledger of the destination, compacted, one partition; control records and aborted ones do not count
key        a JSON list: who writes, from where, to where
value      a JSON object: positions of the source by partition, or the number of a batch
write      in the transaction of the rows, as its last record
read       from the end of the topic to its start: the entry of somebody at work is near the end. What
           was read is kept, so the next key costs what was added since
```
An entry behind the open transaction of another writer is not visible to `read_committed`. So each transaction also commits the offset of its
entry for a group of this key, which says whether the entry was committed (KIP-447). This offset may expire: then the read waits for the other transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from fletchlog._core import Broker, Cluster, Consumer
from fletchlog._place import STORE, Place
from fletchlog._whole import described_whole
from fletchlog.errors import InvalidArgumentError, KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from fletchlog.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from fletchlog._core import Producer
    from fletchlog.admin import PartitionDescription, TopicDescription
    from fletchlog.configs import TopicConfig
    from fletchlog.types import Column, IsolationLevel

log = logging.getLogger("fletchlog.ledger")

TOPIC = "__fletchlog_ledger"
# what the names of its groups begin with
GROUPS = "fletchlog-ledger-"
_PARTITION = 0
# Small segments: the cleaner leaves only the last one as it is. Markers of transactions go after an hour.
_CONFIG: TopicConfig = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "3600000"}
# Of an embedded broker's ledger, before it is compacted here: its own cleaner is off unless `log.cleaner.enable` is on.
_MOST_SEGMENTS = 4
# Offsets that are read at first; then four times as many, and so on.
_FIRST_STEP = 512
# Of the producers that write entries: with transactions of version 2 (KIP-890), a record that arrives late gets into no other transaction.
PRODUCER = {"fletchlog.producer.version": "4.4"}
# How long the transactions of other writers are waited for.
_WAIT_S = 60
_RETRY_S = 0.1
# TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_AUTHORIZED = {29, 30, 31, 53}


class Ledger:
    """The ledger of a destination. `peer` and `client`: what its consumers connect to, and their properties."""

    def __init__(self, admin: Broker | Cluster, peer: Any, client: Mapping[str, Any]) -> None:
        self._admin, self._peer, self._client = admin, peer, client
        self._is_made = False
        # the last value of each key in the offsets that were read, in the order of these values; None: the key has ended
        self._known: dict[bytes, bytes | None] = {}
        self._begin = self._end = -1

    def create(self) -> None:
        """Makes the topic, if there is none.

        Raises:
            fletchlog.errors.InvalidArgumentError: The topic that is there is not compacted.
            fletchlog.errors.KafkaError: What the user may not do, and needs to.
        """
        if self._is_made:
            return
        with self.rights():
            if TOPIC not in self._admin.topics(include_internal=True):
                with contextlib.suppress(TopicAlreadyExistsError):
                    self._admin.create_topic(TOPIC, config=_CONFIG)
            config = self._admin.describe_topic(TOPIC).config
        # None: this client may not read it
        if config is not None and config.get("cleanup.policy") != "compact":
            raise InvalidArgumentError(
                f"topic {TOPIC}: cleanup.policy is {config.get('cleanup.policy', 'not set')}, so what it remembers would expire; "
                f"set it to compact: fletchlog topics alter .. {TOPIC} --config cleanup.policy=compact"
            )
        self._is_made = True

    def read(self, *key: str) -> dict[str, Any] | None:
        """The last entry of this key that was committed. `create` was called, and `init_transactions` by the only writer of the key."""
        wanted = _text(*key)
        return self._last(lambda keys: [wanted] if wanted in keys else [], group_of(*key))

    def knows(self, *key: str) -> bool:
        """Whether there is an entry whose key begins with these parts."""
        wanted = _text(*key)[:-1]
        return self._last(lambda keys: [key for key in keys if key.startswith(wanted) and key[len(wanted) :][:1] in (b",", b"]")], None) is not None

    def write(self, producer: Producer, value: Mapping[str, Any], *key: str, instead_of: tuple[str, ...] = ()) -> None:
        """Makes an entry part of the open transaction, behind all of its rows, which are sent by this. `instead_of`: a key that ends with it.

        Raises:
            fletchlog.errors.KafkaError: Of a row, or of the entry: abort the transaction.
        """
        with self.rights():
            if instead_of:
                producer.send(TOPIC, key=_text(*instead_of), value=None, partition=_PARTITION)
            entry = producer.send(TOPIC, key=_text(*key), value=json.dumps(value).encode(), partition=_PARTITION)
        producer.flush()
        with self.rights():
            written = entry.result()
            producer.send_offsets_to_transaction({(TOPIC, _PARTITION): written.offset}, ConsumerGroupMetadata("", -1, group_of(*key)))

    def _last(self, wanted: Callable[[Collection[bytes]], list[bytes]], group: str | None) -> dict[str, Any] | None:
        """The last committed entry of a key, or one of several keys. `wanted`: those among some; `group`: that of the key."""
        until = time.monotonic() + _WAIT_S
        with self.rights():
            while True:
                found = described_whole(self._admin, TOPIC).partitions[_PARTITION]
                self._compact(found)
                behind = self._entries(found.last_stable_offset, found.high_watermark, "read_uncommitted")
                undecided = {offset: value for offset, key, value in behind if wanted((key,))}
                if not undecided:
                    return self._search(found, wanted)
                committed = None if group is None else self._committed(group)
                if committed is not None:
                    return _value(undecided[committed]) if committed in undecided else self._search(found, wanted)
                if time.monotonic() > until:
                    raise KafkaTimeoutError(
                        f"topic {TOPIC}: an open transaction at offset {found.last_stable_offset} hides whether what is behind it was committed; it ends with "
                        "its transaction.timeout.ms, or when its writer is started again: fletchlog transactions list shows it. Try again then"
                    )
                time.sleep(_RETRY_S)

    def _search(self, found: PartitionDescription, wanted: Callable[[Collection[bytes]], list[bytes]]) -> dict[str, Any] | None:
        """In what is decided: what was added since the last search, and then from the end to the start."""
        if self._end < 0:
            self._begin = self._end = found.last_stable_offset
        _add(self._known, self._range(self._end, found.last_stable_offset))
        self._end = found.last_stable_offset
        while not (keys := wanted(self._known)) and self._begin > found.log_start_offset:
            begin = max(found.log_start_offset, self._begin - max(_FIRST_STEP, 4 * (self._end - self._begin)))
            earlier = self._range(begin, self._begin)
            _add(earlier, self._known)
            self._known, self._begin = earlier, begin
        return _value(self._known[keys[-1]]) if keys else None

    def _range(self, begin: int, end: int) -> dict[bytes, bytes | None]:
        """The last committed value of each key in a range of offsets, in their order."""
        last: dict[bytes, bytes | None] = {}
        for _, key, value in self._entries(begin, end, "read_committed"):
            _add(last, {key: value})
        return last

    def _entries(self, begin: int, end: int, isolation_level: IsolationLevel) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Entries in a range of offsets: (offset, key, value). None: the key has ended there."""
        if begin >= end:
            return
        columns: list[Column] = ["offset", "key", "value"]
        for batch in self._admin.scan(TOPIC, _PARTITION, start_offset=begin, end_offset=end, isolation_level=isolation_level, columns=columns):
            for offset, key, value in zip(*(batch[name].to_pylist() for name in columns), strict=True):
                if key is not None:
                    yield offset, key, value

    def _committed(self, group: str) -> int | None:
        """The offset of the entry that was committed last; None: not known."""
        with Consumer(self._peer, dict(self._client) | {"group.id": group, "enable.auto.commit": "false"}) as consumer:
            found = consumer.committed((TOPIC, _PARTITION))
        return None if found is None else found.offset

    def _compact(self, found: PartitionDescription) -> None:
        """The cleaner of an embedded broker's ledger. A cluster has its own."""
        if isinstance(self._admin, Broker) and found.segments > _MOST_SEGMENTS and not self._admin.read_only:
            try:
                self._admin.clean_topic(TOPIC)
            except KafkaError as error:  # the ledger is only longer than it has to be
                log.warning("topic %s was not compacted: %s", TOPIC, error)

    @contextlib.contextmanager
    def rights(self) -> Iterator[None]:
        """Says what the user needs to be allowed."""
        try:
            yield
        except KafkaError as error:
            if error.code not in _NOT_AUTHORIZED:
                raise
            text = (
                f"{error}: copies and Spark's sink keep how far they are in topic {TOPIC} of the destination. This user needs DESCRIBE, READ and WRITE on "
                "the topic, READ on groups and DESCRIBE and WRITE on transactional ids that begin with fletchlog-; and CREATE on the topic for the first time, "
                "unless somebody else makes it, with cleanup.policy=compact"
            )
            refused = KafkaError(text)
            refused.code, refused.name = error.code, error.name
            raise refused from error


def group_of(*key: str) -> str:
    """The group of a key."""
    return f"{GROUPS}{hashlib.blake2b(_text(*key), digest_size=12).hexdigest()}"


def names_of(admin: Broker | Cluster, topic: TopicDescription) -> list[str]:
    """What tells a topic from all others, the most lasting name first; none if it has no id, nor its cluster."""
    found = [topic.topic_id] if topic.topic_id.strip("A") else []
    # before 2.8 Kafka's topics have no ids; a log that had none may have been given one since
    cluster = admin.cluster_id
    return [*found, f"{cluster}/{topic.name}"] if cluster else found


def lasting_names(admin: Broker | Cluster, topic: TopicDescription) -> list[str]:
    """As `names_of`; where there is none, the place of the directory."""
    return names_of(admin, topic) or [f"{socket.gethostname()}:{path_of(admin)}/{topic.name}"]


def path_of(admin: Broker | Cluster) -> str | None:
    """Where the directory is; None: a cluster, or in memory."""
    if not isinstance(admin, Broker) or (place := admin._place()) == "in memory":  # noqa: SLF001 - of this package
        return None
    return place if Place(place).kind == STORE else os.path.realpath(place)


def has_records(admin: Broker | Cluster, topic: str, *, undecided: bool = True) -> bool:
    """Whether readers of committed records find something or have found something; `undecided`: or may, when open transactions have ended."""
    for p in described_whole(admin, topic).partitions:
        if p.log_start_offset > 0 or (undecided and p.last_stable_offset < p.high_watermark):
            return True
        if p.last_stable_offset > 0:
            scan = admin.scan(topic, p.partition, batch_rows=1, isolation_level="read_committed", columns=["offset"])
            if any(batch.num_rows for batch in scan):
                return True
    return False


def _add(known: dict[bytes, bytes | None], later: Mapping[bytes, bytes | None]) -> None:
    """Puts later values behind the known ones, also those of known keys."""
    for key, value in later.items():
        known.pop(key, None)
        known[key] = value


def _value(entry: bytes | None) -> dict[str, Any] | None:
    return None if entry is None else dict(json.loads(entry))


def _text(*key: str) -> bytes:
    return json.dumps(key, separators=(",", ":")).encode()
