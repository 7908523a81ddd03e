"""Part 23: the recorded fault scripts by our producer on a real broker, through the proxy that drops, loses and refuses: requests, log and futures as recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any

import pytest

import fletchlog as fl
from tests.acceptance.test_producer_faults import DEFAULTS, GOLDEN, TIMING, log_of, outcome, send

from . import kafka
from .kraft import Kraft
from .test_5_faults import AT_A_TIME, BACKOFF_MS, CLIENTS, broker, name_of, proxy  # noqa: F401

PART = "23 producer under faults on a real broker"
# Nothing stops our sender while a group of records is handed over: it may begin with less of them than the recorded one, which is another
# run. So may a machine that is too busy to keep the silence. Both are run again.
TRIES = 8
# its script counts requests behind the first of a bumped epoch, see `comparable`
COUNTS_WHAT_OURS_DOES_NOT_SEND = {"309"}
# actions of the proxy
KNOWN = ("ok", "lost-ack", "disconnect", "refused", "appended-refused")
Scenario = dict[str, Any]


def scenarios(client: str) -> dict[str, Scenario]:
    """What was recorded with a client, but for what depends on time or on the topic's name."""
    found = {}
    for path in sorted((GOLDEN / "expected" / kafka.RECORDED_AS.get(client, client)).glob("*.json")):
        of = json.loads((GOLDEN / "scenarios" / path.name).read_text())
        timed = any("sleep" in step for step in of["steps"]) or any(not what.startswith(KNOWN) for what in of["script"].values())
        if not (timed or "HOLE" in of["title"] or path.stem in TIMING | COUNTS_WHAT_OURS_DOES_NOT_SEND or "topic" in of or of["partitions"] > 3):
            found[path.stem] = of
    return found


def run(name: str, client: str, of: Scenario, port: int) -> list[int | None]:
    """The calls of a scenario; the offset of each record, or None."""
    backoff = {"retry.backoff.ms": BACKOFF_MS, "retry.backoff.max.ms": BACKOFF_MS}
    config = {**DEFAULTS, **of["config"], **backoff, "client.id": name, "fletchlog.producer.version": client}
    futures: list[Any] = []
    with fl.Producer(f"kafka://127.0.0.1:{port}", config) as producer:
        producer.partitions_for(name)
        for step in of["steps"]:
            if "flush" in step:
                producer.flush()
            else:
                for partition in step["send"]:
                    futures.append(send(producer, name, len(futures), partition))
        producer.flush()
        outcomes = [outcome(future) for future in futures]
    return [None if isinstance(result, Exception) else result for result in outcomes]


def requests_of(lines: list[str]) -> dict[str, list[Any]]:
    """What the proxy printed, by client: (number, treated before, action, partition, records, epoch, sequence, answer)."""
    found: dict[str, list[Any]] = {}
    for line in lines:
        name, number, after, what, partition, _, epoch, sequence, ids, error, offset = line.split(" ")
        answer = None if error == "-" else [int(error), int(offset)]
        row = (int(number), int(after), what, int(partition), [int(one) for one in ids.split(",")], int(epoch), int(sequence), answer)
        found.setdefault(name, []).append(row)
    return found


def recorded(client: str, number: str) -> tuple[list[Any], list[Any], list[int | None]]:
    """Requests, log and futures."""
    of = json.loads((GOLDEN / "expected" / kafka.RECORDED_AS.get(client, client) / f"{number}.json").read_text())
    rows = [
        (request["n"], request["after"], request["action"], part["p"], part["ids"], part["epoch"], part["seq"], part.get("answer"))
        for request in of["requests"]
        for part in sorted(request["parts"], key=lambda part: part["p"])
    ]
    return rows, without_ids(of["log"]), [future if isinstance(future, int) else None for future in of["futures"]]


def comparable(requests: list[Any]) -> list[Any]:
    """Up to the first batch of a bumped epoch (on a cluster ours sends that one alone, and Java's others behind it, in vain), and the first
    that was recorded without its number."""
    return list(takewhile(lambda row: row[0] is not None and row[5] <= 0, requests))


def are_same(ours: list[Any], theirs: list[Any]) -> bool:
    """All requests, or those that can be compared."""
    wanted = comparable(theirs)
    return (ours if len(wanted) == len(theirs) else ours[: len(wanted)]) == wanted


def without_ids(log: list[list[list[int]]]) -> list[list[list[int]]]:
    """Producer ids are the broker's choice."""
    return [[row[:2] + row[3:] for row in rows] for rows in log]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("client", CLIENTS)
def test_requests_log_and_futures_are_the_recorded_ones(client: str, broker: tuple[int, Kraft], count: Callable[..., None]) -> None:  # noqa: F811
    port, running = broker
    left = scenarios(client)
    assert len(left) > 30, "the recordings are gone"
    differences: dict[str, str] = {}
    for tries in range(TRIES):
        names = {name_of(f"{client}-ours", tries, int(number)): number for number in left}
        with proxy(port, running, {name: left[number]["script"] for name, number in names.items()}) as printed:
            with fl.Cluster(f"kafka://127.0.0.1:{port}") as cluster:
                for name, number in names.items():
                    cluster.create_topic(name, left[number]["partitions"])
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                futures = dict(zip(names, pool.map(lambda of: run(of[0], client, left[of[1]], port), names.items()), strict=True))
        requests = requests_of(printed)
        with fl.Broker(running.directory, read_only=True) as reader:
            for name, number in names.items():
                log = without_ids([log_of(reader, name, p, {}) for p in range(left[number]["partitions"])])
                ours, theirs = (requests.get(name, []), log, futures[name]), recorded(client, number)
                if ours[1:] == theirs[1:] and are_same(ours[0], theirs[0]):
                    count(PART, equal_scenarios=1, equal_requests=len(comparable(ours[0])))
                    differences.pop(number, None)
                    del left[number]
                else:
                    differences[number] = f"{number}\nours     {ours}\nrecorded {theirs}\n"
        if not left:
            return
    pytest.fail(f"{len(left)} scenarios differ from their recordings in {TRIES} runs:\n" + "\n".join(differences.values()))
