"""Part 36: the same small programs with six clients, two in this process, the others in processes that run one program per line (`Peer`)."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

import fletchlog as fl
from fletchlog.testing import FaultPlan, Request

from . import kafka

PART = "36 plans of faults"
CLIENTS = ["librdkafka", "fletchlog", "java-3.9.1", "java-4.4.0", "kafka-python", "franz-go"]
APP = "app"
ROOT = Path(__file__).resolve().parents[2]
# of a program, which has smaller limits of its own
LIMIT_SECONDS = 40.0
ATTEMPTS = 3


class Place(NamedTuple):
    """Where programs run."""

    bootstrap: str
    faults: FaultPlan


Program = Callable[..., list[Any]]


class Client(NamedTuple):
    """A client's programs. Each takes a place, a topic, and properties by Kafka's names; it returns what it saw, in order.

    sends: five records, one request each: the error of each.
    consumes: five records and two commits: values, and outcomes of the commits. The group is the topic's name.
    transacts: three transactions: the outcome of each. The transactional id is the topic's name. The first one waits `pause.ms` before its end.
    belongs: a member until a record "stop" comes: assignments and revocations. Only of clients in processes.
    """

    name: str
    sends: Program
    consumes: Program
    transacts: Program
    belongs: Program | None = None


def librdkafka(place: Place, **config: Any) -> dict[str, Any]:
    if "request.timeout.ms" in config:
        config["socket.timeout.ms"] = config.pop("request.timeout.ms")
    return {
        "bootstrap.servers": place.bootstrap,
        "client.id": APP,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 40,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "socket.timeout.ms": 2000,
        "topic.metadata.refresh.interval.ms": -1,
        **config,
    }


def with_protocol(config: dict[str, Any]) -> dict[str, Any]:
    """With the new protocol the session is the broker's, and clients refuse the property."""
    return {name: value for name, value in config.items() if name != "session.timeout.ms"} if config.get("group.protocol") == "consumer" else config


def librdkafka_sends(place: Place, topic: str, **config: Any) -> list[Any]:
    errors: list[str] = []
    producer = confluent_kafka.Producer(librdkafka(place, **{"linger.ms": 0, "message.timeout.ms": 20000, **config}))
    for number in range(5):
        try:
            producer.produce(topic, str(number), partition=0, on_delivery=lambda error, _: errors.append(error.name() if error else "written"))
        except confluent_kafka.KafkaException as error:
            errors.append(f"not taken: {error.args[0].name()}")
        producer.flush(30)
    return errors


def ours_sends(place: Place, topic: str, **config: Any) -> list[Any]:
    errors: list[str] = []
    given = {"client.id": APP, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 40, "request.timeout.ms": 2000, "delivery.timeout.ms": 20000}
    with fl.Producer(f"kafka://{place.bootstrap}", given | config) as producer:
        for number in range(5):
            error = producer.send(topic, value=b"%d" % number, partition=0).exception()
            errors.append(type(error).__name__ if error else "written")
    return errors


def librdkafka_consumes(place: Place, topic: str, **config: Any) -> list[Any]:
    found: list[Any] = []
    given = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 30000, **config}
    reader = confluent_kafka.Consumer(librdkafka(place, **with_protocol(given)))
    reader.subscribe([topic])
    while len([value for value in found if isinstance(value, bytes)]) < 5:
        message = reader.poll(10)
        if message is None:
            return [*found, "nothing came"]
        if message.error():
            found.append(message.error().name())
            continue
        found.append(message.value())
        if message.value() in (b"1", b"4"):
            try:
                reader.commit(message, asynchronous=False)
                found.append("committed")
            except confluent_kafka.KafkaException as error:
                found.append(error.args[0].name())
    reader.close()
    return found


def ours_consumes(place: Place, topic: str, **config: Any) -> list[Any]:
    found: list[Any] = []
    given = {
        "client.id": APP,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "retry.backoff.ms": 20,
        "session.timeout.ms": 30000,
    }
    with fl.Consumer(f"kafka://{place.bootstrap}", with_protocol(given | config)) as reader:
        reader.subscribe([topic])
        while len([value for value in found if isinstance(value, bytes)]) < 5:
            try:
                records = list(reader.poll(timeout_ms=5000))
            except fl.KafkaError as error:
                found.append(type(error).__name__)
                continue
            for record in records:
                found.append(record.value)
                if record.value in (b"1", b"4"):
                    try:
                        reader.commit({(topic, 0): record.offset + 1})
                        found.append("committed")
                    except fl.KafkaError as error:
                        found.append(type(error).__name__)
    return found


def librdkafka_transacts(place: Place, topic: str, **config: Any) -> list[Any]:
    found: list[str] = []
    pause = config.pop("pause.ms", 0)
    producer = confluent_kafka.Producer(librdkafka(place, **{"transactional.id": topic, "linger.ms": 0, **config}))
    try:
        producer.init_transactions(10)
        for number in range(3):
            producer.begin_transaction()
            producer.produce(topic, str(number), partition=0)
            if number == 0 and pause:
                producer.flush(5)
                time.sleep(pause / 1000)
            try:
                producer.commit_transaction(10)
                found.append("committed")
            except confluent_kafka.KafkaException as error:
                found.append(error.args[0].name())
                if not error.args[0].txn_requires_abort():
                    break
                producer.abort_transaction(10)
    except confluent_kafka.KafkaException as error:
        found.append(error.args[0].name())
    return found


def ours_transacts(place: Place, topic: str, **config: Any) -> list[Any]:
    found: list[str] = []
    pause = config.pop("pause.ms", 0)
    given = {"client.id": APP, "transactional.id": topic, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 40, "max.block.ms": 8000}
    with contextlib.suppress(fl.KafkaError), fl.Producer(f"kafka://{place.bootstrap}", given | config) as producer:
        try:
            producer.init_transactions()
            for number in range(3):
                with producer.transaction():
                    producer.send(topic, value=b"%d" % number, partition=0)
                    if number == 0 and pause:
                        producer.flush()
                        time.sleep(pause / 1000)
                found.append("committed")
        except fl.KafkaError as error:
            found.append(type(error).__name__)
    return found


LIBRDKAFKA = Client("librdkafka", librdkafka_sends, librdkafka_consumes, librdkafka_transacts)
OURS = Client("fletchlog", ours_sends, ours_consumes, ours_transacts)

# Java's names; those that a client does not have are not among its own.
SENDS = {"linger.ms": 0, "delivery.timeout.ms": 20000}
BLOCKS = {"max.block.ms": 8000}
EVERYWHERE = {"client.id": APP, "request.timeout.ms": 2000}
BACKOFF = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20, "metadata.max.age.ms": 3600000}
READS = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
SESSION = {"session.timeout.ms": 30000}


class Peer:
    """A process that reads programs as lines, and prints what each saw as a line of words. One that does not end is killed; the next gets a new process."""

    def __init__(self, name: str, command: list[str], scratch: Path, properties: dict[str, dict[str, Any]]) -> None:
        """`properties` by kind of program."""
        self.name = name
        self._command, self._properties = command, properties
        self.errors = scratch / f"{name}.err"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def _run(self, kind: str, place: Place, topic: str, config: dict[str, Any]) -> list[Any]:
        identity = {"consumes": {"group.id": topic}, "belongs": {"group.id": topic}, "transacts": {"transactional.id": topic}, "sends": {}}[kind]
        given = with_protocol(self._properties[kind] | identity | config)
        words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given.items()]
        return self._ask(" ".join([kind, place.bootstrap, topic, *words]))

    def _ask(self, line: str) -> list[Any]:
        if self._process is None:
            with self.errors.open("ab") as errors:
                self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            self._lines = queue.Queue()
            threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        try:
            answer = self._lines.get(timeout=LIMIT_SECONDS)
        except queue.Empty:
            answer = f"did not end within {LIMIT_SECONDS:.0f} s"
            self.close()
        assert answer, f"{self.name} ended on {line}:\n{self.errors.read_text()[-3000:]}"
        return answer.split()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def close(self) -> None:
        """Kills the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self._process = None

    def client(self) -> Client:
        """Its programs."""

        def program(kind: str) -> Program:
            def run(place: Place, topic: str, **config: Any) -> list[Any]:
                return self._run(kind, place, topic, config)

            return run

        return Client(self.name, program("sends"), program("consumes"), program("transacts"), program("belongs"))


def java(release: str, scratch: Path) -> Peer:
    """Kafka's own client."""
    command = [*kafka.JVM, "-Xmx128m", "-cp", kafka.classpath("plans", [("kafka-clients", release)]), "Plans"]
    common = EVERYWHERE | BACKOFF | {"retry.backoff.max.ms": 40}
    reads = common | READS | SESSION | {"default.api.timeout.ms": 10000}
    sends = common | SENDS | BLOCKS
    return Peer(f"java-{release}", command, scratch, {"sends": sends, "transacts": sends, "consumes": reads, "belongs": reads})


def kafka_python(scratch: Path) -> Peer:
    """kafka-python of .venv."""
    command = [sys.executable, "-m", "judges.interop.kafka_python"]
    sends = EVERYWHERE | BACKOFF | SENDS | BLOCKS
    reads = EVERYWHERE | BACKOFF | READS | SESSION
    return Peer("kafka-python", command, scratch, {"sends": sends, "transacts": sends, "consumes": reads, "belongs": reads})


def franz_go(program: Path, scratch: Path) -> Peer:
    """franz-go, compiled (`go/plans.go`, which has what every program needs)."""
    sends = EVERYWHERE | {"delivery.timeout.ms": 20000}
    reads = EVERYWHERE | SESSION
    return Peer("franz-go", [str(program), "plans"], scratch, {"sends": sends, "transacts": EVERYWHERE, "consumes": reads, "belongs": reads})


@contextlib.contextmanager
def in_all_clients(go_program: list[str], scratch: Path) -> Iterator[dict[str, Client]]:
    """Every client by name, while their processes run."""
    peers = [java("3.9.1", scratch), java("4.4.0", scratch), kafka_python(scratch), franz_go(Path(go_program[0]), scratch)]
    try:
        yield {client.name: client for client in [LIBRDKAFKA, OURS, *(peer.client() for peer in peers)]}
    finally:
        for peer in peers:
            peer.close()


def load_coordinators(place: Place) -> None:
    """Returns once both coordinators work. A real broker creates and loads their topics when they are first asked for; a plan is to see neither."""
    assert OURS.transacts(place, "loaded", **{"client.id": "admin", "max.block.ms": 60000}) == ["committed"] * 3
    with fl.Consumer(f"kafka://{place.bootstrap}", {"client.id": "admin", "group.id": "loaded", "default.api.timeout.ms": 60000}) as consumer:
        consumer.commit({("loaded", 0): 1})


def requests_of_app(place: Place) -> Iterator[Request]:
    """What the program asked for. A broker reads a connection's next request after its response; the proxy does not wait for that."""
    waits: set[int] = set()
    for row in place.faults.requests(client_id=APP):
        if row.connection not in waits:
            yield row
        if row.outcome == "pending":
            waits.add(row.connection)


def compared(plan: str, places: Sequence[Any], run: Callable[[Any, int], dict[str, Any]], count: Callable[..., None]) -> list[str]:
    """The difference of a plan before a real Kafka and on our listener, as a text, or nothing; `run` gets a place and the number of the attempt.

    Clients have timers and threads of their own, so on a busy machine two runs before one Kafka can differ. A difference has to come again, twice; how often one
    did not is in the line of the part.
    """
    for attempt in range(ATTEMPTS):
        expected, found = (run(place, attempt) for place in places)
        lines = [f"  {key}\n    kafka {expected[key]}\n    ours  {found[key]}" for key in expected if expected[key] != found[key]]
        if not lines:
            if attempt:
                count(PART, equal_in_another_attempt=1)
            return []
    return ["\n".join([plan, *lines])]
