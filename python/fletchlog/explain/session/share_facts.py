"""What ShareFetch and ShareAcknowledge say, as rows: what is acknowledged, what is acquired, and the share session between them (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.rows import Acknowledged, Acquired, Lane, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fletchlog.explain.session.recorded import Exchange

    Named = Callable[[Any], str | None]
    Topic = Callable[[dict[str, Any]], str]

FINAL_EPOCH = -1
"""Ends a share session. Kafka: `ShareRequestMetadata#FINAL_EPOCH`."""
RECORD_LIMIT = 1
"""`share.acquire.mode=record_limit` in a ShareFetch. Kafka: `ShareAcquireMode`."""


class ShareSessions:
    """The partitions of each member's share session with a node: a request names only what changes."""

    def __init__(self, error: Named, topic: Topic) -> None:
        """With Kafka's name of an error code, and the name of the topic of a struct."""
        self._error = error
        self._topic = topic
        self._wanted: dict[tuple[str, int], dict[Lane, None]] = {}

    def read(self, exchange: Exchange, client: int, request: dict[str, Any], response: dict[str, Any]) -> Shared:
        """The row of a request."""
        member = request.get("member_id") or ""
        results = {Lane(self._topic(t), p["partition_index"]): p for t in response.get("responses") or () for p in t["partitions"]}
        is_fetch = exchange.api == "ShareFetch"
        of_acknowledgement = "acknowledge_error_code" if is_fetch else "error_code"
        failed = self._error(response.get("error_code"))
        acknowledged = [
            found._replace(error=failed or self._error(results.get(found.lane, {}).get(of_acknowledgement))) for found in self._acknowledged(request)
        ]
        wanted = self._session(exchange.connection, member, request, is_fetch=is_fetch)
        batches = [batch for fields in results.values() for batch in fields.get("records") or ()] if is_fetch else []
        return Shared(
            exchange.number, client, exchange.connection, exchange.arrived_us, exchange.answered_us, exchange.outcome, exchange.api,
            request.get("group_id") or "", member, request.get("share_session_epoch", 0), wanted, request.get("max_records", 0),
            request.get("batch_size", 0), request.get("max_wait_ms", 0), request.get("min_bytes", 0), request.get("max_bytes", 0),
            request.get("share_acquire_mode", 0), bool(request.get("is_renew_ack")), response.get("acquisition_lock_timeout_ms") or 0, failed,
            acknowledged, list(_acquired(results)) if is_fetch else [], sum(batch["size"] for batch in batches),
        )  # fmt: skip

    def _acknowledged(self, request: dict[str, Any]) -> Iterator[Acknowledged]:
        for topic in request.get("topics") or ():
            for partition in topic["partitions"]:
                lane = Lane(self._topic(topic), partition["partition_index"])
                for batch in partition.get("acknowledgement_batches") or ():
                    yield Acknowledged(lane, batch["first_offset"], batch["last_offset"], tuple(batch["acknowledge_types"]), None)

    def _session(self, connection: int, member: str, request: dict[str, Any], *, is_fetch: bool) -> tuple[Lane, ...]:
        """The partitions of a fetch; none of a ShareAcknowledge. Kafka: `ShareSession`."""
        epoch = request.get("share_session_epoch", 0)
        wanted = {} if epoch == 0 else self._wanted.get((member, connection), {})
        if is_fetch:
            for topic in request.get("forgotten_topics_data") or ():
                for partition in topic["partitions"]:
                    wanted.pop(Lane(self._topic(topic), partition), None)
            wanted |= {Lane(self._topic(t), p["partition_index"]): None for t in request.get("topics") or () for p in t["partitions"]}
            self._wanted[member, connection] = wanted
        if epoch == FINAL_EPOCH:
            self._wanted.pop((member, connection), None)
        return tuple(wanted) if is_fetch else ()


def _acquired(results: dict[Lane, dict[str, Any]]) -> Iterator[Acquired]:
    for lane, fields in results.items():
        batches = fields.get("records") or ()
        for found in fields.get("acquired_records") or ():
            first, last = found["first_offset"], found["last_offset"]
            written = [batch["max_timestamp"] for batch in batches if batch["base_offset"] <= last and first <= batch["last_offset"]]
            yield Acquired(lane, first, last, found["delivery_count"], max(written, default=-1))
