"""Part 45: the polls of Java consumers, derived from recorded sessions alone, are those that their programs saw: at a listener and at a proxy before it.

With franz-go the order of arrival is that in which a program sees records, as tests/explain shows for librdkafka, kafka-python and aiokafka.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.explain.session import Explained, Polls
from pytest_fletchlog.kafka import Kafka

from . import kafka
from .test_13_wire_polls import BACKOFF, Scenario, fill, lines_of, scenarios
from .test_16_wire_languages import execute, go_program  # noqa: F401 - a fixture

PART = "45 polls of sessions"
CLIENTS = ["2.6.3", "3.9.1", "4.4.0"]
THREADS = 8
# every n-th recorded scenario with each client
EVERY = 3
# what may end before its last fetch: the program assigned other partitions, or sought in a way that fetches do not show
MOST_PARTED = 0.05


def seen(name: str, printed: str) -> list[list[Any]]:
    """What each poll with records returned."""
    lines = [line.split(" ")[2:] for line in printed.splitlines() if line.startswith(f"{name} poll")]
    runs = [[word.split(":") for word in words if not word.startswith("!")] for words in lines]
    return [[[topic, *map(int, numbers)] for topic, *numbers in poll] for poll in runs if poll]


def derived(polls: Polls) -> list[list[Any]]:
    return [[[run.lane.topic, run.lane.partition, run.first, run.last, run.records] for run in poll.runs] for poll in polls.polls]


def record(client: str, of: dict[str, Scenario], tmp_path: Path, over: str, protocol: str = "classic") -> tuple[str, dict[str, Path]]:
    """Runs scenarios side by side, each with a broker of its own. Returns what the programs printed, and the sessions."""
    settings = ["auto.offset.reset=earliest", "enable.auto.commit=false", "fetch.max.wait.ms=20"]
    settings += [f"retry.backoff.ms={BACKOFF}", f"retry.backoff.max.ms={BACKOFF}"]
    if client.startswith("4."):
        settings.append(f"group.protocol={protocol}")
    paths = {number: tmp_path / f"{client}-{number}.fltrace" for number in of}
    with contextlib.ExitStack() as stack:
        stdin = ""
        for number, scenario in of.items():
            broker = stack.enter_context(fl.Broker.in_memory())
            fill(broker, scenario["topics"])
            address = stack.enter_context(broker.listen(record=paths[number] if over == "listener" else None)).bootstrap
            if over == "proxy":
                cluster = stack.enter_context(fl.Cluster(f"kafka://{address}"))
                address = stack.enter_context(cluster.proxy(record=paths[number])).bootstrap
            stdin += lines_of(f"{client}-{number}", scenario, address)
        printed = kafka.run("clients", [("kafka-clients", client)], "Poll", str(THREADS), *settings, stdin=stdin)
    return printed, paths


def wrong(polls: Polls, program: list[list[Any]]) -> str | None:
    """The first derived poll that the program did not see in this order; polls that are marked as not decided may be others, or more."""
    behind = iter(program)
    for at, poll in enumerate(derived(polls)):
        if polls.polls[at].decided and not any(poll == saw for saw in behind):
            return f"poll {at + 1}: {poll}"
    return None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("over", ["listener", "proxy"])
@pytest.mark.parametrize("client", CLIENTS)
def test_derived_polls_are_those_of_the_program(client: str, over: str, tmp_path: Path, count: Callable[..., None]) -> None:
    every = scenarios(client)
    begin = ["listener", "proxy"].index(over)
    of = {number: scenario for at, (number, scenario) in enumerate(every.items()) if at % EVERY == begin}
    printed, paths = record(client, of, tmp_path, over)
    different, parted, undecided, unlike = [], [], 0, []
    for number, scenario in of.items():
        name = f"{client}-{number}"
        explained: Explained = fl.explain.clients(paths[number])
        program = seen(name, printed)
        if not program:
            continue
        polls = explained.polls(name, scenario["client"].get("max.poll.records"))
        assert not polls.why_not, (number, polls.why_not)
        if why := wrong(polls, program):
            different.append(f"{number} {scenario['tags']}: {why}; calls {polls.calls}")
        if polls.parted:
            parted.append(f"{number} {scenario['tags']}: {polls.agreeing} of {polls.fetches}: {polls.parted}")
        elif derived(polls) != program[: len(polls.polls)]:
            unlike.append(number)
        undecided += sum(not poll.decided for poll in polls.polls)
        count(PART, scenarios=1, whole=int(polls.parted is None), polls=len(polls.polls), fetches=polls.agreeing)
    count(PART, undecided_polls=undecided, undecided_and_other=len(unlike))
    assert not different, "\n".join(different)
    assert len(parted) <= MOST_PARTED * len(of), "\n".join(parted)


@pytest.mark.timeout(900)
def test_derived_polls_with_the_protocol_of_kip_848(tmp_path: Path, count: Callable[..., None]) -> None:
    client = CLIENTS[-1]
    grouped = [(number, scenario) for number, scenario in scenarios(client).items() if scenario["group"] or "subscribe" in scenario["tags"]]
    of = dict(grouped[::EVERY])
    printed, paths = record(client, of, tmp_path, "listener", "consumer")
    different = []
    for number, scenario in of.items():
        name = f"{client}-{number}"
        program = seen(name, printed)
        if not program:
            continue
        polls = fl.explain.clients(paths[number]).polls(name, scenario["client"].get("max.poll.records"))
        assert not polls.why_not, (number, polls.why_not)
        if why := wrong(polls, program):
            different.append(f"{number} {scenario['tags']}: {why}; calls {polls.calls}")
        count(PART, with_kip_848=1, polls=len(polls.polls), undecided_polls=sum(not poll.decided for poll in polls.polls))
    assert not different, "\n".join(different)


def test_the_order_of_arrival_is_what_a_program_with_franz_go_sees(
    go_program: list[str],  # noqa: F811
    tmp_path: Path,
    count: Callable[..., None],
) -> None:
    with Kafka(record=tmp_path / "session.fltrace") as served:
        topic = served.topic(partitions=4)
        served.produce(topic, [(str(i), "x" * 50) for i in range(200)])
        saw = json.loads(execute([*go_program, "order", served.bootstrap, topic, "200"], tmp_path))
    arrivals = fl.explain.clients(tmp_path / "session.fltrace").order("reader").arrivals
    assert [[arrival.lane.partition, offset] for arrival in arrivals for offset in range(arrival.first, arrival.last + 1)] == saw
    count(PART, records_of_franz_go=len(saw))
