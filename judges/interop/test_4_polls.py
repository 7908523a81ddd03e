"""Part 4: what each poll of a real KafkaConsumer returns, on logs that fletchlog wrote and a real broker serves."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from tests.acceptance.test_poll_traces import replay
from tests.support.batches import batch_of

from . import kafka
from .conftest import CASES, SEED
from .kraft import Kraft, cluster_of

PART = "4 poll order, live"
SCENARIOS = max(8, CASES // 2)
RUNS = 3  # a scenario counts when all runs are alike
# of one whose runs are alike and not ours: a race within a call may well end alike a few times, but ours is then among the many
MORE_RUNS = 40
# our consumer reads from the broker's directory, and in each n-th scenario from the broker, too
REMOTE_EVERY = 8
# they sleep most of the time
THREADS = 12
# fetch.max.wait.ms of every client, and the time after a poll in which every answer arrives
MAX_WAIT, SETTLE = 20, 60
# retry.backoff.ms: a group's heartbeat thread looks at the network as often as this, and metadata is asked for again after it.
# Both happen between any two polls then, where the default of 100 ms is a race
BACKOFF = 10
# of every poll but the first, which has time to connect and to join
TIMEOUT = 1_000
TRANSACTIONAL = ["txn", "payments-txn", "A"]
# nobody ends what is open while the test runs
OPEN_MS = 86_400_000
Scenario = dict[str, Any]
# what each poll returned, and the final positions
Outcome = tuple[list[Any], list[Any]]


class Served(NamedTuple):
    """A running broker, a copy of its directory as fletchlog left it, and where its logs end."""

    broker: Kraft
    copy: Path
    topics: dict[str, Any]


def fill(directory: Path, rng: random.Random) -> dict[str, Any]:
    """Topics with batches of all sizes, one segment or many, plain and compressed. Returns their ends."""
    names = ["a", "b", "orders", "payments", "t-1", "vary", "Z", "topic10"]
    topics = {}
    with fl.Broker(directory, create=True, config={"transaction.max.timeout.ms": OPEN_MS}) as broker:
        for number, name in enumerate(names):
            partitions = rng.randrange(1, 7)
            config = {"internal.segment.bytes": rng.choice([3_000, 30_000])} if number % 2 else {}
            broker.create_topic(name, partitions=partitions, config=config)
            sizes = rng.choice([[(7, 180)], [(1, 80), (9, 700)], [(20, 900), (1, 90), (60, 2_500)]])
            if number % 4 == 3:
                codec = rng.choice(["gzip", "lz4", "zstd", "snappy"])
                with fl.Producer(broker, {"compression.type": codec, "batch.size": 2_000, "linger.ms": 20}) as producer:
                    for i in range(2_500 * partitions):
                        producer.send(name, value=b"value %d" % i, partition=i % partitions)
            else:
                for partition in range(partitions):
                    for _ in range(250):
                        broker.append_batches(name, partition, batch_of(*rng.choice(sizes)))
        for name in TRANSACTIONAL:
            fill_transactions(broker, name, rng)
        for name in (*names, *TRANSACTIONAL):
            ends = [p.high_watermark for p in broker.describe_topic(name).partitions]
            topics[name] = {"config": "", "partitions": [{"end": end} for end in ends]}
    return topics


def fill_transactions(broker: fl.Broker, topic: str, rng: random.Random) -> None:
    """Committed and aborted transactions of several producers, across each other and across plain batches; some stay open at the end."""
    partitions = rng.randrange(2, 5)
    broker.create_topic(topic, partitions=partitions, config={"internal.segment.bytes": 20_000})
    config = {"batch.size": rng.choice([100, 500]), "transaction.timeout.ms": OPEN_MS, "compression.type": rng.choice(["none", "none", "lz4"])}
    producers = [fl.Producer(broker, {**config, "transactional.id": f"{topic}-{number}"}) for number in range(3)]
    for producer in producers:
        producer.init_transactions()
    plain, running = fl.Producer(broker, {"batch.size": 300}), set()
    for _ in range(250 * partitions):
        number = rng.randrange(4)
        producer = plain if number == 3 else producers[number]
        if number != 3 and number not in running:
            producer.begin_transaction()
            running.add(number)
        for _ in range(rng.choice([1, 2, 9])):
            producer.send(topic, value=bytes(rng.choice([10, 60])), partition=rng.randrange(partitions))
        producer.flush()
        if number in running and rng.random() < 0.3:
            rng.choice([producer.commit_transaction, producer.abort_transaction])()
            running.remove(number)
    plain.close()
    for number, producer in enumerate(producers):
        producer.close(0 if number in running else None)  # a close in peace would abort what is open


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for every client."""
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    scratch = tmp_path_factory.mktemp("polls")
    topics = fill(scratch / "data", random.Random(f"{SEED} polls"))
    shutil.copytree(scratch / "data", scratch / "copy")
    with Kraft(kafka.NEWEST, scratch / "data", scratch, cluster_of(scratch / "copy")) as broker:
        yield Served(broker, scratch / "copy", topics)
    shutil.rmtree(scratch)


def some(rng: random.Random, assigned: list[list[Any]]) -> list[list[Any]]:
    return rng.sample(assigned, rng.randrange(1, len(assigned) + 1))


def scenario(rng: random.Random, topics: dict[str, Any]) -> Scenario:
    """Calls in the format of the recordings."""
    every = [[name, p] for name, topic in topics.items() for p in range(len(topic["partitions"]))]
    client: dict[str, Any] = {"max.poll.records": rng.choice([1, 3, 7, 10, 44, 100, 500]), "fetch.max.wait.ms": MAX_WAIT}
    client["max.partition.fetch.bytes"] = rng.choice([100, 400, 1_300, 5_000, 20_000])
    if rng.random() < 0.3:
        client["fetch.max.bytes"] = client["max.partition.fetch.bytes"] * rng.choice([1, 2, 3])
    if rng.random() < 0.5:
        client["isolation.level"] = "read_committed"
    group = rng.random() < 0.4
    steps: list[dict[str, Any]] = []
    if group:
        names = rng.sample(list(topics), rng.randrange(1, 5))
        assigned = [place for place in every if place[0] in names]
        steps.append({"subscribe": names})
    else:
        assigned = rng.sample(every, rng.randrange(1, 9))
        steps.append({"assign": assigned})
    steps.append({"poll": rng.randrange(2, 12)})
    for _ in range(rng.randrange(4)):
        kind = rng.choice(["seek", "pause", "resume", "seekToBeginning", "assign"])
        if kind == "seek":
            steps.append({"seek": [[t, p, rng.randrange(topics[t]["partitions"][p]["end"] // 2)] for t, p in some(rng, assigned)]})
        elif kind == "assign" and not group:
            assigned = rng.sample(every, rng.randrange(1, 9))
            steps.append({"assign": assigned})
        elif kind == "pause" and len(assigned) > 1:  # somebody goes on
            steps.append({"pause": some(rng, assigned[1:])})
        elif kind in ("resume", "seekToBeginning"):
            steps.append({kind: some(rng, assigned)})
        steps.append({"poll": rng.randrange(1, 12)})
    return {"group": group, "client": client, "steps": steps, "topics": topics, "pollTimeout": TIMEOUT}


def changing(rng: random.Random, topics: dict[str, Any]) -> Scenario:
    """Topics and partitions come, go and come back between polls, by assign() and subscribe(); some are sought or paused before their first poll."""
    group = rng.random() < 0.35
    # under assign() partitions, under subscribe() topics
    every: list[Any] = list(topics) if group else [[name, p] for name, topic in topics.items() for p in range(len(topic["partitions"]))]
    client: dict[str, Any] = {"max.poll.records": rng.choice([1, 6, 7, 10, 50]), "fetch.max.wait.ms": MAX_WAIT}
    client["max.partition.fetch.bytes"] = rng.choice([180, 400, 1_300, 5_000])
    if not group and rng.random() < 0.3:
        client["group.id"] = "assigned"
    now = rng.sample(every, rng.randrange(1, 4))
    earlier = [now]
    call = "subscribe" if group else "assign"
    steps: list[dict[str, Any]] = [{call: now}, {"poll": rng.randrange(1, 8)}]
    for _ in range(rng.randrange(2, 6)):
        match rng.choice(["come", "come", "go", "replace", "back", "unsubscribe"]):
            case "come":
                now = [*now, *new(rng, every, now, rng.randrange(1, 4))]
            case "go":
                now = some(rng, now)
            case "replace":
                now = [*some(rng, now), *new(rng, every, now, rng.randrange(1, 3))]
            case "back":
                now = rng.choice(earlier)
            case _:
                steps.append({"unsubscribe": []})
        rng.shuffle(now := list(now))
        earlier.append(now)
        steps.append({call: now})
        if not group:
            steps += moves(rng, now, topics)
        if rng.random() < 0.8:  # else the next change follows at once
            steps.append({"poll": rng.randrange(1, 9)})
    steps.append({"poll": rng.randrange(4, 12)})
    timeout = 0 if not group and rng.random() < 0.25 else TIMEOUT
    return {"group": group, "client": client, "steps": steps, "topics": topics, "pollTimeout": timeout}


def returning(rng: random.Random, topics: dict[str, Any]) -> Scenario:
    """Partitions go and come back at once, and are sought: the metadata that is on its way then is about the topics before."""
    every: list[list[Any]] = [[name, p] for name, topic in topics.items() for p in range(len(topic["partitions"]))]
    pool = rng.sample(every, 4)
    client: dict[str, Any] = {"max.poll.records": rng.choice([6, 7, 10, 50]), "fetch.max.wait.ms": MAX_WAIT}
    client["max.partition.fetch.bytes"] = rng.choice([400, 1_300, 5_000])
    steps: list[dict[str, Any]] = [{"assign": pool}, {"poll": rng.randrange(2, 8)}]
    for _ in range(rng.randrange(2, 5)):
        now = rng.sample(pool, rng.randrange(1, 4))
        steps += [{"assign": now}, {"poll": rng.randrange(1, 3)}]
        if rng.random() < 0.4:
            now = rng.sample(pool, rng.randrange(1, 4))
            steps += [{"assign": now}, {"poll": 1}]
        steps.append({"assign": rng.sample(pool, len(pool))})
        if rng.random() < 0.75:
            back = [place for place in pool if place not in now]
            steps.append({"seek": [[t, p, rng.randrange(topics[t]["partitions"][p]["end"] // 2)] for t, p in back]})
        steps.append({"poll": rng.randrange(1, 9)})
    steps.append({"poll": 6})
    return {"group": False, "client": client, "steps": steps, "topics": topics, "pollTimeout": 0 if rng.random() < 0.25 else TIMEOUT}


def new(rng: random.Random, every: list[Any], now: list[Any], most: int) -> list[Any]:
    """So many that are not among `now`, or all there are."""
    others = [place for place in every if place not in now]
    return rng.sample(others, min(most, len(others)))


def moves(rng: random.Random, assigned: list[list[Any]], topics: dict[str, Any]) -> list[dict[str, Any]]:
    """Mostly nothing; else one call about some of the partitions."""
    chosen = some(rng, assigned)
    sought = [[t, p, rng.randrange(topics[t]["partitions"][p]["end"] // 2)] for t, p in chosen]
    match rng.randrange(10):
        case 0 | 1 | 2:
            return [{"seek": sought}]
        case 3:
            return [{rng.choice(["seekToBeginning", "seekToEnd"]): chosen}]
        case 4 if len(assigned) > 1:
            return [{"pause": some(rng, assigned[1:])}]
        case 5:
            return [{"resume": chosen}]
    return []


def lines_of(name: str, of: Scenario) -> str:
    """As `Poll` reads it."""
    config = {**of["client"], **({"group.id": name} if of["group"] else {}), "retry.backoff.ms": BACKOFF, "retry.backoff.max.ms": BACKOFF}
    lines = [f"scenario {name} {SETTLE} {of['pollTimeout']} " + " ".join(f"{key}={value}" for key, value in config.items())]
    for step in of["steps"]:
        ((kind, operands),) = step.items()
        words = [operands] if kind == "poll" else operands
        lines.append(f"{kind} " + " ".join(word if isinstance(word, str) else str(word) if kind == "poll" else ":".join(map(str, word)) for word in words))
    return "".join(line + "\n" for line in lines)


def java(address: str, client: str, scenarios: list[Scenario], which: Sequence[int]) -> list[list[Outcome]]:
    """Per scenario and run, which have these numbers."""
    settings = [f"bootstrap.servers={address}", "auto.offset.reset=earliest", "enable.auto.commit=false"]
    if client.startswith("4."):
        settings.append("group.protocol=classic")
    runs: dict[str, Outcome] = {}
    stdin = "".join(lines_of(f"{client}-{run}-{number}", of) for run in which for number, of in enumerate(scenarios))
    for line in kafka.run("clients", [("kafka-clients", client)], "Poll", str(THREADS), *settings, stdin=stdin).splitlines():
        name, kind, *places = line.split(" ")
        if kind == "at":
            continue
        polls, positions = runs.setdefault(name, ([], []))
        fields = [[topic, *map(int, numbers)] for topic, *numbers in (place.split(":") for place in places)]
        if kind == "poll":
            polls.append((fields, False))
        else:
            positions += sorted(fields)
    return [[runs[f"{client}-{run}-{number}"] for run in which] for number in range(len(scenarios))]


def again(address: str, client: str, of: Scenario) -> list[Outcome]:
    """One scenario many times over, side by side."""
    return [outcome for (outcome,) in java(address, client, [of] * MORE_RUNS, [RUNS])]


def judge(client: str, scenarios: list[Scenario], served: Served, count: Callable[..., None]) -> None:
    """Every scenario in which the Java client does the same in all runs is ours poll by poll."""
    different, unstable = [], 0
    address = served.broker.address
    for number, (of, runs) in enumerate(zip(scenarios, java(address, client, scenarios, range(RUNS)), strict=True)):
        with fl.Broker(served.copy, read_only=True) as broker:
            ours = replay(broker, of, client)
        if runs.count(runs[0]) < RUNS or (ours != runs[0] and ours in again(address, client, of)):
            count(PART, unstable_scenarios=1)
            unstable += 1
            continue
        if ours != runs[0]:
            different.append((number, lines_of("x", of), ours[0], runs[0][0]))
            continue
        if number % REMOTE_EVERY == 0:
            # the metadata's backoff is that of the Java client, which asks between two polls
            same = {**of, "client": {**of["client"], "retry.backoff.ms": BACKOFF}}
            remote = replay(f"kafka://{address}", same, client, SETTLE / 1_000)
            if remote == runs[0]:
                count(PART, equal_scenarios_over_sockets=1)
            else:
                different.append((f"{number} over sockets", lines_of("x", of), remote[0], runs[0][0]))
        isolation = of["client"].get("isolation.level", "read_uncommitted")
        count(PART, **{f"equal_scenarios_{isolation}": 1}, equal_polls=len(ours[0]), records=sum(run[4] for polls, _ in ours[0] for run in polls))
    assert not different, f"{len(different)} of {len(scenarios)} scenarios differ, the first: {different[0]}"
    assert unstable < 0.3 * len(scenarios), "the machine is too busy to tell what Java does"


@pytest.mark.parametrize("client", kafka.CLIENTS)
def test_every_poll_is_the_java_clients(client: str, served: Served, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} scenarios {client}")
    judge(client, [scenario(rng, served.topics) for _ in range(SCENARIOS)], served, count)


@pytest.mark.parametrize("client", kafka.CLIENTS)
def test_topics_that_come_and_go_between_polls(client: str, served: Served, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} changes {client}")
    judge(client, [changing(rng, served.topics) for _ in range(SCENARIOS)], served, count)


@pytest.mark.parametrize("client", kafka.CLIENTS)
def test_topics_that_come_back_while_metadata_is_on_its_way(client: str, served: Served, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} returns {client}")
    judge(client, [returning(rng, served.topics) for _ in range(SCENARIOS)], served, count)
