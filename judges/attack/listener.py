"""Attacks a serving process, one kind after the other, while one client works: produces a record and waits for its answer, again
and again.

Each attack prints one line: how long the working client waited (p50, p99, longest), how much memory and how many descriptors the
process took meanwhile and has kept afterwards. A working client's p99 of P99_MS (default 10) ms or more, more than 16 MiB above
what an attack may take (the table below says how much), and descriptors that stay are violations.

`python -m judges.attack.listener` ends with `attack: N attacks, V violations`. CONNECTIONS (default 19,000) is the number of idle
connections, SECONDS (default 10) the time of an attack.
"""

# ruff: noqa: T201

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from settings import count

from tests.support.batches import crc32c

NAME = "attack"
MIB = 1 << 20
BUDGET = 64 * MIB
ALLOWED = 16 * MIB
CONFIG = {"queued.max.request.bytes": str(BUDGET), "auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"}
# When the records of the working client were made, in ms.
NOW = 1_790_000_000_000
Address = tuple[str, int]


def frame(key: int, version: int, body: bytes, size: int | None = None) -> bytes:
    """A request with an old header, whose announced size may be a lie."""
    payload = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(payload) if size is None else size) + payload


def text(value: str) -> bytes:
    """STRING."""
    return struct.pack(">h", len(value)) + value.encode()


def connect(address: Address) -> socket.socket:
    """A connection that never waits."""
    connection = socket.create_connection(address, timeout=30)
    connection.setblocking(False)
    return connection


def send(connection: socket.socket, data: bytes) -> bool:
    """Sends what goes without waiting; false: the other side has closed it."""
    try:
        connection.send(data)
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


@contextlib.contextmanager
def connections(address: Address, number: int) -> Iterator[list[socket.socket]]:
    """So many of them, closed in the end."""
    opened: list[socket.socket] = []
    try:
        opened += (connect(address) for _ in range(number))
        yield opened
    finally:
        for connection in opened:
            connection.close()


def idle(address: Address, seconds: float, number: int) -> str:
    """Connections that say nothing."""
    with connections(address, number) as opened:
        time.sleep(seconds)
        return f"{len(opened)} idle connections"


def slow(address: Address, seconds: float, number: int) -> str:
    """Requests of which a byte comes a second."""
    request = frame(3, 1, struct.pack(">i", 0) + bytes(200))
    with connections(address, number) as opened:
        for at in range(max(2, int(seconds))):
            for connection in opened:
                send(connection, request[at : at + 1])
            time.sleep(1)
        return f"{len(opened)} connections that send a byte a second"


def announced(address: Address, seconds: float, number: int) -> str:
    """Sizes without bytes: 100 MiB, which is allowed, and 2^31-1."""
    with connections(address, number) as opened:
        for n, connection in enumerate(opened):
            send(connection, frame(0, 3, b"", 100 * MIB if n % 2 else 2**31 - 1))
        time.sleep(seconds)
        return f"{len(opened)} announced sizes of 100 MiB and 2^31-1"


def begun(address: Address, seconds: float, number: int) -> str:
    """Requests of 100 MiB, of which 10 MiB come, if they are taken."""
    chunk, end = bytes(MIB), time.monotonic() + seconds
    with connections(address, number) as opened:
        sent = [send(connection, frame(0, 3, b"", 100 * MIB)) for connection in opened]
        taken = [0] * len(opened)
        while time.monotonic() < end:
            for n, connection in enumerate(opened):
                if taken[n] < 10 * MIB:
                    with contextlib.suppress(OSError):
                        taken[n] += connection.send(chunk)
            time.sleep(0.02)
        return f"{len(sent)} requests of 100 MiB begun, {sum(taken) // MIB} MiB taken"


def arrays(address: Address, seconds: float, _: int) -> str:
    """Arrays of 2^31-1 in requests of a few bytes: the connection is closed."""
    requests = [frame(key, version, struct.pack(">i", 2**31 - 1)) for key, version in ((3, 1), (42, 0), (15, 0))]
    requests += [frame(1, 4, struct.pack(">iiiibi", -1, 0, 0, 1, 0, 2**31 - 1)), frame(0, 3, struct.pack(">hhii", -1, 1, 100, 2**31 - 1))]
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(requests[done % len(requests)])
            with contextlib.suppress(ConnectionError):
                connection.recv(1)
        done += 1
    return f"{done} arrays of 2^31-1"


def partitions(address: Address, seconds: float, _: int) -> str:
    """Fetches of 100,000 partitions, each answered."""
    asked = b"".join(struct.pack(">iqi", n, 0, 1) for n in range(100_000))
    request = frame(1, 4, struct.pack(">iiiibi", -1, 0, 0, 1, 0, 1) + text("work") + struct.pack(">i", 100_000) + asked)
    done, end = 0, time.monotonic() + seconds
    with socket.create_connection(address, timeout=60) as connection:
        while time.monotonic() < end:
            connection.sendall(request)
            left = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            while left:
                left -= len(connection.recv(min(left, MIB)))
            done += 1
    return f"{done} fetches of 100,000 partitions"


def deaf(address: Address, seconds: float, number: int) -> str:
    """Clients that ask for 20 MiB again and again and never read."""
    asked = struct.pack(">iqi", 0, 0, 20 * MIB)
    request = frame(1, 4, struct.pack(">iiiibi", -1, 0, 0, 20 * MIB, 0, 1) + text("large") + struct.pack(">i", 1) + asked)
    with connections(address, number) as opened:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for connection in opened:
                send(connection, request)
            time.sleep(0.2)
        return f"{len(opened)} clients that ask for 20 MiB and never read"


def gone(address: Address, seconds: float, number: int) -> str:
    """Clients that close, every second one with a reset, while their fetch waits for as long as a request can say."""
    asked = struct.pack(">iqi", 0, 0, 1)
    request = frame(1, 4, struct.pack(">iiiibi", -1, 2**31 - 1, 1, 1, 0, 1) + text("empty") + struct.pack(">i", 1) + asked)
    with connections(address, number) as opened:
        for n, connection in enumerate(opened):
            send(connection, request)
            if n % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(seconds / 2)
    time.sleep(seconds / 2)
    return f"{number} clients that close while their fetch waits"


def ids(address: Address, seconds: float, _: int) -> str:
    """Fetches of a session that forget 50,000 topic ids which no topic has, others each time, over one connection."""

    def fetch(session: tuple[int, int], topics: bytes, forgotten: bytes) -> bytes:
        body = struct.pack(">iiiibii", -1, 0, 0, 1, 0, *session) + topics + forgotten + bytes([1, 0])
        payload = struct.pack(">hhihB", 1, 13, 1, -1, 0) + body
        return struct.pack(">i", len(payload)) + payload

    def answer(connection: socket.socket) -> tuple[int, int]:
        """Error and session id."""
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        return struct.unpack_from(">hi", connection.recv(size, socket.MSG_WAITALL), 9)

    number = 50_000
    unknown = bytes([2]) + bytes(15) + bytes([1, 2]) + struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1) + bytes([0, 0])
    many = number + 1
    length = bytes([many & 0x7F | 0x80, many >> 7 & 0x7F | 0x80, many >> 14])
    done, end = 0, time.monotonic() + seconds
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(fetch((0, 0), unknown, bytes([1])))
        error, session = answer(connection)
        assert error == 0
        while time.monotonic() < end:
            done += 1
            forgotten = length + b"".join(struct.pack(">qq", done, n) + bytes([2]) + struct.pack(">i", 0) + bytes([0]) for n in range(number))
            connection.sendall(fetch((session, done), bytes([1]), forgotten))
            assert answer(connection) == (0, session)
    return f"{done * number} forgotten topic ids that no topic has"


def joins(address: Address, seconds: float, _: int) -> str:
    """First joins, of one group and of ever new ones: each gets a member id that is never used."""
    done, end = 0, time.monotonic() + seconds
    with socket.create_connection(address, timeout=30) as connection:
        while time.monotonic() < end:
            group = "one" if done % 2 else f"group-{done}"
            timeouts = struct.pack(">ii", 6000, 6000)
            body = text(group) + timeouts + text("") + text("consumer") + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0)
            connection.sendall(frame(11, 4, body))
            size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            connection.recv(size, socket.MSG_WAITALL)
            done += 1
    return f"{done} first joins without a second"


Attack = Callable[[Address, float, int], str]
# Each with the connections it takes for one of CONNECTIONS, the bytes that the process may take for it beside ALLOWED, and those
# for each connection. Answers that nobody takes have a budget of the same size.
ATTACKS: list[tuple[Attack, float, int, int]] = [
    (idle, 1, 0, 2048),
    (slow, 5 / 19, 0, 2048),
    (announced, 1 / 19, 0, 2048),
    (begun, 1 / 190, BUDGET + 100 * MIB, 2048),
    (arrays, 0, 0, 0),
    (partitions, 0, BUDGET, 0),
    (deaf, 1 / 380, BUDGET, 0),
    (gone, 1 / 19, 0, 4096),
    (ids, 0, BUDGET, 0),
    (joins, 0, 48 * MIB, 0),
]


def produce() -> bytes:
    """A request with one record, acks=1."""
    record = bytes([0, 0, 0, 1, 2, 120, 0])
    header = struct.pack(">hiqqqhii", 0, 0, NOW, NOW, -1, -1, -1, 1) + bytes([len(record) * 2]) + record
    batch = struct.pack(">qiibI", 0, len(header) + 9, -1, 2, crc32c(header)) + header
    data = struct.pack(">i", 1) + text("work") + struct.pack(">iii", 1, 0, len(batch)) + batch
    return frame(0, 3, struct.pack(">hhi", -1, 1, 5000) + data)


def work(address: Address, results: Any, stop: Any) -> None:
    """The working client: produces a record with acks=1 again and again; sends the milliseconds of each exchange to `results` at the end."""
    request, waited = produce(), []
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            before = time.perf_counter()
            connection.sendall(request)
            size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            answer = connection.recv(size, socket.MSG_WAITALL)
            assert answer[22:24] == b"\0\0", answer
            waited.append((time.perf_counter() - before) * 1000)
            time.sleep(0.002)
    results.send(sorted(waited))


class Served:
    """A serving process in memory. An attack of so many seconds is over before it begins to look for those that take too long."""

    def __init__(self, seconds: float) -> None:
        properties = CONFIG | {"fletchlog.request.read.timeout.ms": str(int((seconds + 5) * 1000))}
        config = [word for pair in properties.items() for word in ("--config", "=".join(pair))]
        command = [sys.executable, "-m", "fletchlog", "serve", "--memory", "--listen", "127.0.0.1:0", "--print-address", *config]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        bootstrap = json.loads(self.process.stdout.readline())["bootstrap"]
        host, _, port = bootstrap.rpartition(":")
        self.address: Address = (host, int(port))
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        producer.list_topics("empty", timeout=30)
        producer.produce("work", b"x")
        for _ in range(32):
            producer.produce("large", bytes(900_000), partition=0)
            producer.poll(0)
        if producer.flush(30):
            raise RuntimeError("the records for the attacks could not be produced")

    def memory(self) -> int:
        """Bytes that are resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def descriptors(self) -> int:
        """Open ones."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def run(served: Served, attack: Attack, seconds: float, number: int, allowed: int, p99_ms: float) -> int:
    """Violations of one attack."""
    before, had = served.memory(), served.descriptors()
    reader, writer = multiprocessing.Pipe(duplex=False)
    stop, most = multiprocessing.Event(), [before]
    worker = multiprocessing.Process(target=work, args=(served.address, writer, stop))
    watch = multiprocessing.Process(target=attacking, args=(served.address, attack, seconds, number, (said := multiprocessing.Pipe(duplex=False))[1]))
    worker.start()
    watch.start()
    while not said[0].poll(0.05):
        most.append(served.memory())
        if not watch.is_alive():
            break
    what = said[0].recv() if said[0].poll(1) else f"{attack.__name__} failed"
    stop.set()
    waited = reader.recv()
    watch.join()
    worker.join()
    end = time.monotonic() + 10 + seconds
    while time.monotonic() < end and (served.descriptors() > had or served.memory() > before + ALLOWED):
        time.sleep(0.1)
    after, left = served.memory(), served.descriptors()
    p50, p99 = waited[len(waited) // 2], waited[min(len(waited) - 1, len(waited) * 99 // 100)]
    grown = max(most) - before
    wrong = [p99 >= p99_ms, grown > allowed + ALLOWED, left > had, what.endswith("failed")]
    figures = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {waited[-1]:.1f} ms; memory +{grown / MIB:.1f} MiB, afterwards +{(after - before) / MIB:.1f} MiB"
    print(f"{NAME}: {what}: {figures}; descriptors +{left - had}{' VIOLATION' if any(wrong) else ''}", flush=True)
    return any(wrong)


def attacking(address: Address, attack: Attack, seconds: float, number: int, said: Any) -> None:
    """In a process of its own, so that the working client is not held up by it."""
    said.send(attack(address, seconds, number))


def main() -> int:
    """Every attack once."""
    wanted, seconds, p99_ms = count(NAME, "CONNECTIONS", 19_000), count(NAME, "SECONDS", 10), count(NAME, "P99_MS", 10)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    wanted = min(wanted, most - 500)
    served, violations = Served(seconds), 0
    try:
        for attack, share, allowed, each in ATTACKS:
            number = max(2, int(wanted * share))
            violations += run(served, attack, seconds, number, allowed + number * each, p99_ms)
    finally:
        served.process.terminate()
        served.process.wait(30)
    print(f"{NAME}: {len(ATTACKS)} attacks, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
