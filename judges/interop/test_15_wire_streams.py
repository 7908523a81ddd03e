"""Part 15: Kafka Streams and Connect on our listener, killed and started again: exactly once, and at least once, are kept."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fletchlog.kafka import Kafka
from tests.support.ports import free_port

from . import kafka

PART = "15 Streams and Connect over the wire"
# of a release whose own Maven Central does not have
FILE_CONNECTORS = {"4.4.0": "4.3.1"}
KILLS = 4
LINES = 400
# a killed member is gone, and its transaction over, after so many milliseconds
SESSION_MS = 2_000


class Program:
    """A JVM that runs until it is killed."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self.log = [*kafka.JVM, "-Xmx400m", "-cp", *command], log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, again after `kill`."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def kill(self) -> None:
        """Signal 9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


@pytest.fixture
def served() -> Iterator[Kafka]:
    with Kafka(config={"group.min.session.timeout.ms": "100", "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}) as opened:
        yield opened


@pytest.fixture
def started() -> Iterator[Callable[[list[str], Path], Program]]:
    """Starts programs, and kills what is left of them."""
    programs: list[Program] = []

    def start(command: list[str], log: Path) -> Program:
        programs.append(Program(command, log))
        programs[-1].start()
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def counts(served: Kafka) -> dict[str, list[int]]:
    """What was committed of each word, in the order of the log."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in served.records("counts", isolation_level="read_committed").to_pylist():
        found[row["key"].decode()].append(int(row["value"]))
    return found


def wait(done: Callable[[], bool], program: Program, seconds: float = 60) -> None:
    """Until it is done; the program's log when it never is."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, program.log.read_text()[-4000:]
        time.sleep(0.05)


@pytest.mark.parametrize("release", kafka.SERVERS)
def test_a_word_count_that_is_killed_counts_every_word_once(
    release: str, served: Kafka, started: Callable[[list[str], Path], Program], scratch: Path, count: Callable[..., None]
) -> None:
    """Every count of a word is committed once and in order, whenever signal 9 comes: the state, the offsets and the counts are one transaction."""
    served.topic(name="lines", partitions=3)
    served.topic(name="counts", partitions=2)
    settings = [f"bootstrap.servers={served.bootstrap}", "application.id=words", "processing.guarantee=exactly_once_v2", "commit.interval.ms=50"]
    settings += [f"state.dir={scratch}/state", "replication.factor=1", "statestore.cache.max.bytes=0", "consumer.auto.offset.reset=earliest"]
    settings += [f"consumer.session.timeout.ms={SESSION_MS}", "consumer.heartbeat.interval.ms=300", f"producer.transaction.timeout.ms={SESSION_MS}"]
    program = started([kafka.classpath("streams", [("kafka-streams", release)]), "Count", *settings], scratch / "streams.log")
    expected: Counter[str] = Counter()
    for kill in range(KILLS + 1):
        lines = [f"w{i % 7} w{i % 13} w{i % 31} kill{kill}" for i in range(LINES)]
        served.produce("lines", [(f"{i}", line) for i, line in enumerate(lines)])
        before = expected.total()
        expected.update(word for line in lines for word in line.split(" "))
        if kill < KILLS:
            # somewhere in the middle
            wait(lambda before=before, kill=kill: sum(map(len, counts(served).values())) > before + 100 * kill, program)  # type: ignore[misc]
            program.kill()
            program.start()
    wait(lambda: sum(map(len, counts(served).values())) >= expected.total(), program)
    assert {word: list(range(1, number + 1)) for word, number in expected.items()} == counts(served)
    count(PART, streams_killed=KILLS, counts=expected.total())


def properties(path: Path, values: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(path)


@pytest.mark.parametrize("release", kafka.SERVERS)
def test_connect_copies_a_file_through_a_topic(
    release: str, served: Kafka, started: Callable[[list[str], Path], Program], scratch: Path, count: Callable[..., None]
) -> None:
    """The file source and sink, in standalone mode; after signal 9 nothing is lost."""
    source, target = scratch / "source.txt", scratch / "target.txt"
    worker = {"bootstrap.servers": served.bootstrap, "offset.storage.file.filename": str(scratch / "offsets"), "offset.flush.interval.ms": "200"}
    worker |= {f"{side}.converter": "org.apache.kafka.connect.storage.StringConverter" for side in ("key", "value")}
    worker |= {"listeners": f"http://127.0.0.1:{free_port()}", "consumer.session.timeout.ms": "6000", "plugin.path": str(scratch / "none")}
    of = {"tasks.max": "1"}
    reader = {**of, "name": "source", "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "file": str(source), "topic": "copied"}
    writer = {**of, "name": "sink", "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "file": str(target), "topics": "copied"}
    (scratch / "none").mkdir()
    files = [properties(scratch / f"{name}.properties", values) for name, values in (("worker", worker), ("reader", reader), ("writer", writer))]
    artifacts = [("connect-runtime", release), ("connect-file", FILE_CONNECTORS.get(release, release)), kafka.LOGGING]
    jars = ":".join(f"{kafka.jars(*artifact)}/*" for artifact in artifacts)
    served.topic(name="copied")
    lines = [f"line {i}" for i in range(2000)]
    source.write_text("".join(line + "\n" for line in lines[:1000]))
    program = started([jars, "org.apache.kafka.connect.cli.ConnectStandalone", *files], scratch / "connect.log")
    copied = lambda: target.read_text().splitlines() if target.exists() else []  # noqa: E731
    wait(lambda: len(copied()) >= 1000, program, 90)
    assert copied() == lines[:1000] == [row["value"].decode() for row in served.records("copied").to_pylist()]
    program.kill()
    with source.open("a") as more:
        more.write("".join(line + "\n" for line in lines[1000:]))
    program.start()
    wait(lambda: copied()[-1:] == lines[-1:], program, 90)
    assert list(dict.fromkeys(copied())) == lines, "in order, none lost"
    assert [listed.group_id for listed in served.broker.groups()] == ["connect-sink"]
    count(PART, connect_lines=len(lines))
