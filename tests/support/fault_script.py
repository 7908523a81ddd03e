"""The scripts of the recorded producer faults (tests/golden/README.md, producer-faults) as a `FaultPlan`, and its record in their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fletchlog as fl
from fletchlog._core import error_classes

_CODES = {name: code for name, code, _, _ in error_classes() if code is not None}


def plan_of(script: Mapping[int, str]) -> fl.testing.FaultPlan:
    """Actions by number of the Produce, from 1; every other one is `ok`."""
    plan = fl.testing.FaultPlan()
    sent = 0

    def count(_request: dict[str, Any]) -> bool:
        nonlocal sent
        sent += 1
        return False

    # asked about every Produce, before the others
    plan.on(api="Produce", when=count, optional=True).close()
    for number, text in script.items():
        if text != "ok":
            _add(plan, number, text, lambda _request, number=number: sent == number)
    return plan


def _add(plan: fl.testing.FaultPlan, number: int, text: str, when: Any) -> None:
    action, delay_ms = text, None
    if text.startswith("wait:"):
        ms, action = text.removeprefix("wait:").split("/", 1)
        delay_ms = int(ms)
    action, _, partition = action.partition("@")
    word, *rest = action.split(":")
    # not `nth`, which counts only requests with the partition
    chosen = plan.on(
        api="Produce",
        partition=int(partition) if partition else None,
        delay_ms=None if action == "ok" else delay_ms,
        when=when,
        name=text,
        optional=True,
    )
    match word:
        case "ok":
            chosen.delay(delay_ms or 0)
        case "lost-ack":
            chosen.lose_response()
        case "disconnect":
            chosen.close()
        case "drop":
            chosen.black_hole()
        case "drop-appended":
            chosen.black_hole("after")
        case "late":
            chosen.delay_response(int(rest[0]))
        case "refused" | "appended-refused":
            code: str | int = int(rest[0]) if rest[0].lstrip("-").isdigit() else rest[0]
            chosen.error(code, handled=word == "appended-refused", log_start_offset=int(rest[1]) if rest[1:] else None)
        case _:
            raise ValueError(f"action {text} of request {number}")


def rows(plan: fl.testing.FaultPlan) -> list[dict[str, Any]]:
    """What was done to every Produce: a row for each request and partition, in the order of arrival."""
    requests = plan.requests(api="Produce")
    numbers = {request.number: place for place, request in enumerate(requests, 1)}
    return [
        {
            "request": numbers[request.number],
            "after": numbers.get(request.after, 0),
            "action": _action(request),
            **batch._asdict(),
            "error": _CODES[batch.error] if batch.error else None if batch.base_offset is None else 0,
            "base_offset": -1 if batch.error else batch.base_offset,
        }
        for request in requests
        for batch in request.batches
    ]


def _action(request: fl.testing.Request) -> str:
    if request.outcome == "connection lost":
        return "lost-with-connection"
    return request.fault or ("held" if request.outcome == "pending" else "ok")
