"""A Fetch and its response with all that decides the polls of a Java consumer: partitions in their order, batches, errors, its fetch session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.rows import FetchOnWire

if TYPE_CHECKING:
    from fletchlog.explain.session.recorded import Exchange
    from fletchlog.explain.session.rows import WirePartition, WireResponse

_Fields = dict[str, Any]


def fetch_on_wire(exchange: Exchange) -> FetchOnWire | None:
    """The Fetch of an exchange; None: it only closes its fetch session."""
    request, response = exchange.request or {}, exchange.response or {}
    session, epoch = request.get("session_id", 0), request.get("session_epoch", -1)
    if session and epoch < 0:
        return None
    wanted = [(_name(t), p["partition"], p["fetch_offset"]) for t in request.get("topics") or () for p in t["partitions"]]
    forgotten = [(_name(t), partition) for t in request.get("forgotten_topics_data") or () for partition in t["partitions"]]
    # what a fault or a lost connection kept from the client is no response
    answered = exchange.outcome == "answered" and exchange.answered_us is not None
    unknown = "its fields were not recorded" if answered and not response else ""
    if not all(topic for topic, *_ in (*wanted, *forgotten)):
        unknown = "the session does not have the name of a topic, only its id"
    wire = (
        exchange.number,
        exchange.node,
        exchange.arrived_us,
        epoch <= 0,
        wanted,
        forgotten,
        _response(exchange.answered_us or 0, response) if answered and response else None,
    )
    isolation = request.get("isolation_level", 0)
    return FetchOnWire(exchange.number, exchange.node, exchange.connection, int(isolation in (1, "read_committed")), unknown, wire)


def _response(at_us: int, fields: _Fields) -> WireResponse:
    partitions = [_partition(_name(t), p) for t in fields.get("responses") or () for p in t["partitions"]]
    return at_us, fields.get("error_code", 0), fields.get("session_id", 0), partitions


def _partition(topic: str, fields: _Fields) -> WirePartition:
    aborted = [(one["producer_id"], one["first_offset"]) for one in fields.get("aborted_transactions") or ()]
    batches = [
        (one["base_offset"], one["last_offset"], one["records"], one["producer_id"], one["size"], bool(one["transactional"]), bool(one["control"]))
        for one in fields.get("records") or ()
    ]
    return (
        topic,
        fields["partition_index"],
        fields["error_code"],
        fields.get("high_watermark", -1),
        fields.get("last_stable_offset", -1),
        fields.get("preferred_read_replica", -1),
        aborted,
        batches,
    )


def _name(fields: _Fields) -> str:
    return str(fields.get("topic") or fields.get("name") or "")
