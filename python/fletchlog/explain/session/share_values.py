"""A share group as values for JSON and for the page: what each client had, what is held at the end, and its moments in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.explain.session.finding import seconds, several
from fletchlog.explain.session.groups import MS
from fletchlog.explain.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.explain.session.in_flight import Delivery
    from fletchlog.explain.session.share_groups import ShareGroup

ENDED = {
    "accepted": "accepted", "rejected": "rejected", "released": "released", "gap": "no record", "closed": "released by the end of the share session",
    "disconnected": "released by the end of the connection", "expired": "ended by the lock", "": "held at the end",
}  # fmt: skip
UNUSUAL = ("rejected", "released", "closed", "disconnected", "expired")


def values_of(group: ShareGroup) -> dict[str, Any]:
    """What a share group has beside its members and epochs. Times are us since 1970."""
    return {
        "summary": summary(group),
        "work": [
            {
                "client": client, "delivered": work.delivered, "held": work.held, "longest_us": work.longest_us, "renewed": work.renewed,
                "ended": dict(sorted(work.ended.items())),
            }
            for client, work in group.work().items()
        ],
        "held": [_delivery(delivery) for delivery in group.deliveries if not delivery.how],
        "redelivered": [_delivery(delivery) for delivery in group.deliveries if delivery.count > 1],
        "moments": [[at, text] for at, text in sorted(moments_of(group))],
    }  # fmt: skip


def offsets(delivery: Delivery) -> str:
    """Its records as a reader writes them: orders-0 at 17, orders-0 at 17..20."""
    return f"{delivery.lane} at {delivery.first}" + (f"..{delivery.last}" if delivery.last > delivery.first else "")


def moments_of(group: ShareGroup) -> Iterator[tuple[int, str]]:
    """Assignments, and what happened to records that was not a first delivery and its acceptance: time and words."""
    for event in group.events:
        if event.assigned is not None:
            yield event.answered_us or event.at_us, f"{event.member} has {several(map(str, event.assigned)) or 'no partition'}"
    for delivery in group.deliveries:
        what = offsets(delivery)
        if delivery.count > 1:
            yield delivery.at_us, f"{what} delivered to {delivery.member}, for the {nth(delivery.count)} time"
        if delivery.ended_us is None:
            lock = f", with a lock of {seconds(delivery.lock_ms * MS)}" if delivery.lock_ms else ""
            yield delivery.at_us, f"{what} acquired by {delivery.member} and held at the end{lock}"
        elif delivery.how in UNUSUAL:
            held = seconds(delivery.ended_us - delivery.at_us)
            unconfirmed = "" if delivery.is_confirmed else "; the member did not get the response"
            yield delivery.ended_us, f"{what} of {delivery.member}: {ENDED[delivery.how]} after {held}{unconfirmed}"


def nth(number: int) -> str:
    """1st, 2nd, 3rd, 4th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # noqa: PLR2004 - English
    return f"{number}{ending}"


def summary(group: ShareGroup) -> str:
    """How many records, and how their deliveries ended."""
    ended: dict[str, int] = {}
    for delivery in group.deliveries:
        ended[delivery.how] = ended.get(delivery.how, 0) + delivery.records
    total = sum(ended.values())
    return ", ".join([counted(total, "delivery", "deliveries"), *(f"{ended[how]:,} {text}" for how, text in ENDED.items() if ended.get(how))])


def _delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "lane": str(delivery.lane), "first": delivery.first, "last": delivery.last, "count": delivery.count, "member": delivery.member,
        "client": delivery.client, "at_us": delivery.at_us, "number": delivery.number, "lock_ms": delivery.lock_ms, "ended_us": delivery.ended_us,
        "ended_by": delivery.ended_by, "how": delivery.how, "renewed": delivery.renewed,
    }  # fmt: skip
