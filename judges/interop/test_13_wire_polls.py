"""Part 13: the recorded scenarios, by the Java clients that were recorded, against our listener: the same polls, the same fetches, the same answers."""

from __future__ import annotations

import bisect
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from tests.support.batches import batch_of
from tests.support.ports import free_port

from . import kafka
from .fetches import Event, Proxies

PART = "13 recorded scenarios over the wire"
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "poll-traces"
# they sleep most of the time
THREADS = 8
# after each poll: every answer arrives within it
SETTLE = 60
# retry.backoff.ms: as often a group's heartbeat thread looks at the network, and every answer that is there then is read
BACKOFF = 10
# a client that had to wait for the machine is run again, alone
TRIES = 4
Scenario = dict[str, Any]


class Outcome(NamedTuple):
    """In the words of the recordings."""

    polls: list[list[Any]]
    errors: list[bool]
    # of each poll
    net: list[list[Any]]
    positions: list[Any]


def fill(broker: fl.Broker, topics: dict[str, Any]) -> dict[str, str]:
    """Logs with the recorded sizes: only these count for the order. Returns the topics by id."""
    names = {}
    for name, topic in topics.items():
        config = dict(item.split("=", 1) for item in topic["config"].split(",") if item)
        broker.create_topic(name, partitions=len(topic["partitions"]), config=config)
        for number, partition in enumerate(topic["partitions"]):
            for repeat, count, size, *_ in partition["batches"]:
                for _ in range(repeat):
                    broker.append_batches(name, number, batch_of(count, size))
            if partition.get("logStart"):
                broker.delete_records(name, number, partition["logStart"])
        described = broker.describe_topic(name)
        assert [p.high_watermark for p in described.partitions] == [p["end"] for p in topic["partitions"]]
        names[described.topic_id] = name
    return names


def scenarios(client: str) -> dict[str, Scenario]:
    """What was recorded with a client, but for logs with transactions or with batches that only a codec makes so small."""
    found = {}
    for path in sorted((GOLDEN / "expected" / kafka.RECORDED_AS.get(client, client)).glob("*.jsonl")):
        scenario = json.loads((GOLDEN / "scenarios" / f"{path.stem}.json").read_text())
        batches = [b for t in scenario["topics"].values() for p in t["partitions"] for b in p["batches"]]
        if all(len(b) == 4 and b[2] >= 61 + 8 * b[1] for b in batches):
            found[path.stem] = scenario
    return found


def lines_of(name: str, of: Scenario, address: str) -> str:
    """As `Poll` reads it."""
    config = {"bootstrap.servers": address, "client.id": name, **({"group.id": name} if of["group"] else {}), **of["client"]}
    lines = [f"scenario {name} {SETTLE} {of.get('pollTimeout', 1000)} " + " ".join(f"{key}={value}" for key, value in config.items())]
    for step in of["steps"]:
        match step:
            case {"poll": times, **rest}:
                lines.append(f"poll {times} {rest.get('total', '')}".rstrip())
            case {"subscribe": names}:
                lines.append("subscribe " + " ".join(names))
            case _:
                ((kind, places),) = step.items()
                lines.append(f"{kind} " + " ".join(":".join(map(str, place)) for place in places))
    return "".join(line + "\n" for line in lines)


def run(client: str, of: dict[str, Scenario], proxies: Proxies, tries: int) -> dict[str, Outcome]:
    """All of them side by side, each with a broker of its own."""
    settings = ["auto.offset.reset=earliest", "enable.auto.commit=false", "fetch.max.wait.ms=20"]
    settings += [f"retry.backoff.ms={BACKOFF}", f"retry.backoff.max.ms={BACKOFF}"]
    if client.startswith("4."):
        settings.append("group.protocol=classic")
    with contextlib.ExitStack() as stack:
        stdin = ""
        for number, scenario in of.items():
            broker = stack.enter_context(fl.Broker.in_memory())
            target: dict[str, Any] = {"names": fill(broker, scenario["topics"])}
            address, port = proxies.open(target), free_port()
            stack.enter_context(broker.listen(port=port, advertised=address))
            target["address"] = f"127.0.0.1:{port}"
            stdin += lines_of(f"{client}-{number}-{tries}", scenario, address)
        printed = kafka.run("clients", [("kafka-clients", client)], "Poll", str(THREADS), *settings, stdin=stdin)
    return {number: outcome(f"{client}-{number}-{tries}", printed, proxies) for number in of}


def outcome(name: str, printed: str, proxies: Proxies) -> Outcome:
    """Of one scenario."""
    lines = [line.split(" ")[1:] for line in printed.splitlines() if line.startswith(f"{name} ")]
    fields = lambda words: [[topic, *map(int, numbers)] for topic, *numbers in (word.split(":") for word in words)]  # noqa: E731
    polls = [words for kind, *words in lines if kind == "poll"]
    failed = [any(word.startswith("!") for word in words) for words in polls]
    starts = [int(words[0]) for kind, *words in lines if kind == "at"]
    (end,) = (words for kind, *words in lines if kind == "end")
    net = events_of(proxies.events[name], starts)
    return Outcome([[] if bad else fields(words) for words, bad in zip(polls, failed, strict=True)], failed, net, sorted(fields(end)))


def events_of(events: list[tuple[int, Event]], starts: list[int]) -> list[list[Event]]:
    """Per poll, what went over the wire from its start on. The last start is the end of the last poll; what closes the client's session comes after it."""
    net: list[list[Event]] = [[] for _ in starts]
    for at, event in events:
        net[max(0, bisect.bisect(starts, at) - 1)].append(event)
    return net


def difference(client: str, number: str, outcome: Outcome) -> str | None:
    """The first one between a recording and what happened, or None."""
    *recorded, last = [json.loads(line) for line in (GOLDEN / "expected" / kafka.RECORDED_AS.get(client, client) / f"{number}.jsonl").read_text().splitlines()]
    for poll, (want, got, failed, net) in enumerate(zip(recorded, outcome.polls, outcome.errors, outcome.net, strict=False), 1):
        if (want.get("got", []), bool(want.get("err"))) != (got, failed):
            return f"poll {poll}: {got}, recorded {want.get('got')}"
        wire = [[*event[:3], sorted(event[3])] if event[0] == "req" else event for event in want.get("net") or []]
        if want.get("net") is not None and wire != net:
            return f"wire of poll {poll}: {net}, recorded {wire}"
    if (len(recorded), sorted(last["end"]["positions"])) != (len(outcome.polls), outcome.positions):
        return f"{len(outcome.polls)} polls, then {outcome.positions}; recorded {len(recorded)}, then {last['end']['positions']}"
    return None


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    opened = Proxies()
    yield opened
    opened.close()


@pytest.mark.parametrize("client", kafka.CLIENTS)
def test_polls_and_fetches_are_the_recorded_ones(client: str, proxies: Proxies, count: Callable[..., None]) -> None:
    left = scenarios(client)
    assert len(left) > 80, "the recordings are gone"
    for tries in range(TRIES):
        found = {number: (difference(client, number, outcome), outcome) for number, outcome in run(client, left, proxies, tries).items()}
        for why, outcome in found.values():
            if why is None:
                fetches = sum(event[0] == "req" for net in outcome.net for event in net)
                count(PART, equal_scenarios=1, equal_polls=len(outcome.polls), fetches=fetches)
        left = {number: scenario for number, scenario in left.items() if found[number][0] is not None}
        if not left:
            return
    different = [f"{number}: {found[number][0]}" for number in left]
    pytest.fail(f"{len(different)} scenarios differ from their recordings in {TRIES} runs:\n" + "\n".join(different))
