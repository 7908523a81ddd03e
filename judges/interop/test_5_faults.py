"""Part 5: a real KafkaProducer and ours under the same generated faults: requests, log, futures (spec 9.5)."""

from __future__ import annotations

import logging
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count as count_from
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from tests.acceptance.test_producer_faults import DEFAULTS, Outcome, log_of, run
from tests.support.ports import free_port

from . import kafka
from .conftest import CASES, SEED
from .kraft import Kraft, format_directory

PART = "5 producer under faults, live"
CLIENTS = ["2.6.3", "3.9.1", "4.3.1", "4.4.0"]
SCENARIOS = max(10, CASES)
# of a scenario, by number: it counts as soon as Java has done the same in two of them
RUNS = [(0, 1), (2,), (3,), (4,)]
AT_A_TIME = 24
# of a scenario in which ours differs from what Java did twice
MORE_RUNS = 24
# a round trip for metadata must not outlast the back-off, nor the back-off our own silence of 60 ms; a real client that is
# silent for so long has nothing to send
BACKOFF_MS, SILENCE_MS = 40, 250
RETRIABLE = [2, 3, 5, 6, 7, 19, 20, 56, 74]
FINAL = [-1, 10, 29, 32, 45, 46, 48, 87]
FATAL = [47, 90]
MESSAGE_TOO_LARGE = 10
Scenario = dict[str, Any]


def action(rng: random.Random, partitions: int) -> str:
    """What happens to one request."""
    kind = rng.choice(["lost-ack"] * 4 + ["disconnect"] * 3 + ["retriable"] * 6 + ["appended"] * 3 + ["final"] * 2 + ["fatal", "unknown"])
    if kind in ("lost-ack", "disconnect"):
        return kind
    if kind == "fatal" and rng.random() < 0.7:
        kind = "final"
    words = {
        "retriable": lambda: f"refused:{rng.choice(RETRIABLE)}",
        "appended": lambda: f"appended-refused:{rng.choice([7, 20, 19, 10])}",
        "final": lambda: f"refused:{rng.choice(FINAL)}",
        "fatal": lambda: f"refused:{rng.choice(FATAL)}",
        "unknown": lambda: f"refused:59:{rng.choice([0, 5])}",
    }[kind]()
    return f"{words}@{rng.randrange(partitions)}" if partitions > 1 and rng.random() < 0.5 else words


def generate(rng: random.Random) -> Scenario:
    """In the format of the recordings; without what depends on time-outs."""
    partitions = rng.choice([1, 1, 2, 3])
    config = {
        "enable.idempotence": str(rng.random() < 0.65).lower(),
        "max.in.flight.requests.per.connection": str(rng.choice([1, 1, 2, 3, 5, 5])),
        "delivery.timeout.ms": "20000",
        "request.timeout.ms": "15000",
        "retry.backoff.ms": str(BACKOFF_MS),
        "retry.backoff.max.ms": str(BACKOFF_MS),
    }
    if rng.random() < 0.2:
        config["retries"] = str(rng.choice([0 if config["enable.idempotence"] == "false" else 1, 1, 2]))
    if rng.random() < 0.2:
        config["batch.size"] = rng.choice(["200", "400"])
    steps: list[dict[str, Any]] = []
    # the broker knows the producer: without it a refused first batch is retried until delivery.timeout.ms (the hole of 9.6)
    if config["enable.idempotence"] == "true" or rng.random() < 0.5:
        steps += [{"send": list(range(partitions))}, {"flush": True}]
    first = 2 if steps else 1
    for _ in range(rng.randrange(1, 4)):  # without the flush, how far the first group has come when the next begins is a race
        steps += [{"send": [rng.randrange(partitions) for _ in range(rng.randrange(1, 16))]}, {"flush": True}]
    often = rng.choice([0.1, 0.3, 0.5])
    script = {str(n): action(rng, partitions) for n in range(first, first + 16) if rng.random() < often}
    return {"partitions": partitions, "config": config, "steps": steps, "script": script}


def walk(topic: str, partitions: int) -> list[int]:
    """The order in which a producer looks at the partitions of its only topic: that of a `HashMap` of `TopicPartition` (spec 9.4)."""

    def slot(partition: int) -> int:
        text = 0
        for letter in topic:
            text = 31 * text + ord(letter)
        code = 31 * (31 + partition) + text & 0xFFFFFFFF
        return (code ^ code >> 16) & 3

    return sorted(range(partitions), key=slot)


def name_of(client: str, attempt: int, number: int) -> str:
    """A topic that is walked through in the same order as the one of our own runs."""
    names = (f"f{client}-{attempt}-{number}-{suffix}" for suffix in count_from(0))
    return next(name for name in names if walk(name, 3) == walk("t", 3) and walk(name, 2) == walk("t", 2))


def line_of(name: str, client: str, of: Scenario) -> str:
    """As `SendMany` reads it."""
    config = {**DEFAULTS, **of["config"]}
    if client.startswith("2."):
        del config["retry.backoff.max.ms"]
    steps = ["flush" if "flush" in step else "send:" + ",".join(map(str, step["send"])) for step in of["steps"]]
    return f"{name} {of['partitions']} " + " ".join(f"{key}={value}" for key, value in config.items()) + " / " + " ".join(steps) + "\n"


class Java(NamedTuple):
    """What one producer of one scenario did, in the terms of `Outcome`."""

    requests: list[Any]
    futures: list[int | None]
    callbacks: list[int]
    log: list[list[list[int]]]


@contextmanager
def proxy(port: int, broker: Kraft, scripts: dict[str, dict[str, str]]) -> Iterator[list[str]]:
    """Runs `FaultProxy` while the block runs; afterwards the list holds what it printed."""
    classpath = kafka.classpath("faults", [("kafka-clients", kafka.NEWEST)])
    command = [*kafka.JVM, "-cp", classpath, "FaultProxy", str(port), broker.address.rsplit(":", 1)[1], str(SILENCE_MS)]
    lines: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for name, script in scripts.items():
                process.stdin.write(" ".join([name, *(f"{number}={what}" for number, what in script.items())]) + "\n")
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n", "the proxy has ended"
            yield lines
            process.stdin.close()
            lines += process.stdout.read().splitlines()
        finally:
            process.kill()


def java(client: str, port: int, broker: Kraft, scenarios: dict[str, Scenario]) -> dict[str, Java]:
    """Runs all of them once."""
    stdin = "".join(line_of(name, client, of) for name, of in scenarios.items())
    with proxy(port, broker, {name: of["script"] for name, of in scenarios.items()}) as proxied:
        printed = kafka.run("clients", [("kafka-clients", client)], "SendMany", f"127.0.0.1:{port}", str(AT_A_TIME), stdin=stdin)
    found = {}
    for line in printed.splitlines():
        name, futures, callbacks = line.split(" / ")
        found[name] = Java([], [int(word) if word.lstrip("-").isdigit() else None for word in futures.split()], [int(word) for word in callbacks.split()], [])
    for line in proxied:
        name, number, after, what, partition, _, epoch, sequence, ids, error, offset = line.split(" ")
        answer = None if error == "-" else (int(error), int(offset))
        row = (int(number), int(after), what, int(partition), int(epoch), int(sequence), ids.count(",") + 1, answer)
        found[name].requests.append(row)
    return found


def requests_of(ours: Outcome) -> list[Any]:
    """The same rows of ours."""
    rows = []
    for row in ours.requests:
        epoch, sequence = (-1 if row[name] is None else row[name] for name in ("producer_epoch", "base_sequence"))
        answer = None if row["error"] is None else (row["error"], row["base_offset"])
        rows.append((row["request"], row["after"], row["action"], row["partition"], epoch, sequence, row["records"], answer))
    return sorted(rows, key=lambda row: (row[0], row[3]))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Kraft]]:
    """A broker that sends its clients to the proxy's port."""
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    scratch = tmp_path_factory.mktemp("faults")
    port = free_port()
    with Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as running:
        yield port, running


def observed(client: str, port: int, running: Kraft, scenarios: dict[str, Scenario]) -> dict[str, Java]:
    """Runs all of them once, and reads what is in their topics."""
    if not scenarios:
        return {}
    done = java(client, port, running, scenarios)
    with fl.Broker(running.directory, read_only=True) as reader:
        for name, of in scenarios.items():
            ids: dict[int, int] = {}
            done[name] = done[name]._replace(log=[log_of(reader, name, p, ids) for p in range(of["partitions"])])
    return done


def stable(client: str, port: int, running: Kraft, scenarios: list[Scenario]) -> dict[int, Java]:
    """Per scenario what Java did twice in the same way: a busy machine can break the silence too early."""
    seen: dict[int, list[Java]] = {number: [] for number in range(len(scenarios))}
    found: dict[int, Java] = {}
    for attempts in RUNS:
        names = {name_of(client, attempt, number): number for attempt in attempts for number in seen if number not in found}
        done = observed(client, port, running, {name: scenarios[number] for name, number in names.items()})
        for name, number in names.items():
            if done[name] in seen[number]:
                found[number] = done[name]
            seen[number].append(done[name])
    return found


def again(client: str, port: int, running: Kraft, number: int, of: Scenario) -> list[Java]:
    """One scenario many times over: a race within Java may end alike twice."""
    first = RUNS[-1][-1] + 1
    names = [name_of(client, attempt, number) for attempt in range(first, first + MORE_RUNS)]
    return list(observed(client, port, running, dict.fromkeys(names, of)).values())


def comparable(requests: list[Any], client: str) -> list[Any]:
    """Up to 4.1 a flush of Java's does not wait for what a batch was split into (KAFKA-19479), ours does: then time decides how many
    answers the requests behind a split have been waiting for."""
    split = (place for place, row in enumerate(requests) if row[7] is not None and row[7][0] == MESSAGE_TOO_LARGE and row[6] > 1)
    end = next(split, len(requests)) if client < "4.2" else len(requests)
    return requests[:end] + [row[:1] + row[2:] for row in requests[end:]]


def is_same(client: str, ours: Outcome, theirs: Java) -> bool:
    """The same log and futures, and the same requests unless time decided: what is sent again until sends expire, and in which order."""
    same = ours.log == theirs.log and ours.futures == theirs.futures
    return same and ("KafkaTimeoutError" in ours.errors or comparable(requests_of(ours), client) == comparable(theirs.requests, client))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_under_faults_does_what_javas_does(client: str, broker: tuple[int, Kraft], count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} faults {client}")
    scenarios = [generate(rng) for _ in range(SCENARIOS)]
    recorded = stable(client, *broker, scenarios)
    with ThreadPoolExecutor(8) as pool:
        replayed = list(pool.map(lambda number: run(scenarios[number], client), recorded))
    different, raced = [], 0
    for (number, theirs), ours in zip(recorded.items(), replayed, strict=True):
        if is_same(client, ours, theirs):
            count(PART, equal_scenarios=1, equal_requests=len(theirs.requests), with_expiry=int("KafkaTimeoutError" in ours.errors))
            continue
        if any(is_same(client, ours, other) for other in again(client, *broker, number, scenarios[number])):
            raced += 1
            continue
        different.append(
            f"--- {client} scenario {number}: {scenarios[number]}\n"
            f"ours   {requests_of(ours)}\ntheirs {theirs.requests}\n"
            f"ours   {ours.log} {ours.futures}\ntheirs {theirs.log} {theirs.futures}\n"
        )
    count(PART, unstable_in_java=SCENARIOS - len(recorded) + raced)
    assert not different, f"{len(different)} of {SCENARIOS} scenarios differ:\n" + "".join(different)
    assert raced < 0.05 * SCENARIOS, f"{raced} of {SCENARIOS} scenarios met what Java does only at times"
    assert len(recorded) > 0.5 * SCENARIOS, "the machine is too busy to tell what Java does"
