"""What many members of a consumer group (KIP-848) and of a share group (KIP-932) cost a listener, and a real Kafka.

A heartbeat in a consumer group of ten and of 10,000, and in a share group of ten and of 1,000, the most that Kafka allows; a new target for 1,000
members and 10,000 partitions of a consumer group. Members are requests over sockets,
without clients. Both brokers run at the same time, on disk; their rounds take turns. A heartbeat is that of a member that has nothing to
report, one after the other on one connection. A target is made by the member that joins when group.consumer.assignment.interval.ms has
passed: the time is that of its request.

Alone: `python benches/python/consumer_groups.py`; it needs Maven and a JDK.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
import fletchlog as fl  # noqa: E402
from judges.interop.kraft import Kraft, format_directory  # noqa: E402

RELEASE = "4.4.0"
FEW, MANY, SHARING = 10, 10_000, 1_000
WIDE, TOPICS, PARTITIONS = 1_000, 10, 1_000
CONNECTIONS = 16
ROUNDS, HEARTBEATS, TARGETS = 5, 1_000, 7
# no member expires while the other broker is measured
SESSION = {f"group.{kind}.{limit}session.timeout.ms": "3600000" for kind in ("consumer", "share") for limit in ("max.", "")}
SESSION["group.share.max.size"] = str(SHARING)
# after an assignment: group.consumer.assignment.interval.ms, and a little
INTERVAL_S = 1.1
JOIN, LEAVE = 0, -1


def compact(value: str | None) -> bytes:
    """COMPACT_NULLABLE_STRING of less than 127 bytes."""
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


class Member:
    """One member of a consumer group: its epoch, and the partitions that it was given, as they are on the wire."""

    API_KEY = 68

    def __init__(self, group: str, name: str, topics: list[str]) -> None:
        self.group, self.name, self.topics = group, name, topics
        self.epoch = JOIN
        self.owned = b"\x01"

    def request(self, *, epoch: int | None = None, steady: bool = False) -> bytes:
        """Version 1 of the heartbeat. `steady`: with nothing to report."""
        said = self.reported(b"\0" if steady else bytes([len(self.topics) + 1]) + b"".join(map(compact, self.topics)), steady)
        body = compact(self.group) + compact(self.name) + struct.pack(">i", self.epoch if epoch is None else epoch) + said + b"\0"
        payload = struct.pack(">hhih", self.API_KEY, 1, 1, -1) + b"\0" + body
        return struct.pack(">i", len(payload)) + payload

    def reported(self, names: bytes, steady: bool) -> bytes:
        """Instance id, rack, time-out, topics, regular expression, assignor, partitions."""
        return b"\0\0" + struct.pack(">i", -1 if steady else 300_000) + names + b"\0\0" + (b"\0" if steady else self.owned)

    def take(self, response: bytes) -> None:
        """The epoch and the partitions of a response without an error."""
        error = struct.unpack_from(">h", response, 9)[0]
        assert error == 0, f"{self.name}: error {error}"
        at = 11 + max(response[11], 1)
        at += max(response[at], 1)
        self.epoch = struct.unpack_from(">i", response, at)[0]
        if response[at + 8] == 1:
            self.owned = response[at + 9 : -2]


class ShareMember(Member):
    """One member of a share group."""

    API_KEY = 76

    def reported(self, names: bytes, steady: bool) -> bytes:
        """Rack, topics."""
        return b"\0" + names


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=120)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket) -> bytes:
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    return connection.recv(size, socket.MSG_WAITALL)


class Peer:
    """A broker with the groups, all of whose members are settled."""

    def __init__(self, address: str) -> None:
        self.connections = [connect(address) for _ in range(CONNECTIONS)]
        with fl.Cluster(f"kafka://{address}") as cluster:
            cluster.create_topic("few", partitions=FEW)
            for n in range(TOPICS):
                cluster.create_topic(f"wide{n}", partitions=PARTITIONS)
            # makes the coordinators
            for group in (f"g{FEW}", f"g{MANY}", "wide"):
                cluster.group_offsets(group)
        self.wide = [f"wide{n}" for n in range(TOPICS)]
        self.groups = {str(size): [Member(f"g{size}", f"m{n:05}", ["few"]) for n in range(size)] for size in (FEW, MANY)}
        self.groups["wide"] = [Member("wide", f"m{n:05}", self.wide) for n in range(WIDE)]
        for size in (FEW, SHARING):
            self.groups[f"share_{size}"] = [ShareMember(f"s{size}", f"m{n:05}", ["few"]) for n in range(size)]
        self.joined_s: dict[str, float] = {}
        for name, members in self.groups.items():
            begin = time.perf_counter()
            self.all_of(members)
            self.joined_s[name] = time.perf_counter() - begin
            self.settle(members)

    def all_of(self, members: list[Member]) -> None:
        """A full heartbeat of each, over all connections."""
        for first in range(0, len(members), CONNECTIONS):
            some = list(zip(members[first : first + CONNECTIONS], self.connections, strict=False))
            for member, connection in some:
                connection.sendall(member.request())
            for member, connection in some:
                member.take(receive(connection))

    def settle(self, members: list[Member]) -> None:
        """Heartbeats until all have the newest epoch, and nothing to give up or to wait for."""
        time.sleep(INTERVAL_S)
        before = None
        while before != (now := [(member.epoch, member.owned) for member in members]) or len({epoch for epoch, _ in now}) > 1:
            before = now
            self.all_of(members)

    def heartbeat_us(self, group: str) -> float:
        """Median of steady heartbeats, each of another member."""
        connection, members, taken = self.connections[0], self.groups[group], []
        for n in range(HEARTBEATS):
            member = members[n * 7919 % len(members)]
            begin = time.perf_counter()
            connection.sendall(member.request(steady=True))
            response = receive(connection)
            taken.append(time.perf_counter() - begin)
            member.take(response)
        return statistics.median(taken) * 1e6

    def target_ms(self) -> float:
        """The join of one more member, which leaves again."""
        connection, members = self.connections[0], self.groups["wide"]
        self.settle(members)
        time.sleep(INTERVAL_S)
        late = Member("wide", "late", self.wide)
        begin = time.perf_counter()
        connection.sendall(late.request())
        response = receive(connection)
        taken = time.perf_counter() - begin
        late.take(response)
        connection.sendall(late.request(epoch=LEAVE, steady=True))
        receive(connection)
        return taken * 1000


@contextlib.contextmanager
def peers(scratch: Path) -> Iterator[dict[str, str]]:
    """The addresses of both brokers."""
    command = ["fletchlog", "serve", str(scratch / "ours"), "--listen", "127.0.0.1:0", "--print-address"]
    command += [word for key, value in SESSION.items() for word in ("-c", f"{key}={value}")]
    with (
        Kraft(RELEASE, format_directory(scratch / "data"), scratch, config=SESSION, heap="2g") as real,
        subprocess.Popen([str(Path(sys.executable).parent / command[0]), *command[1:]], stdout=subprocess.PIPE, text=True) as ours,
    ):
        assert ours.stdout is not None
        try:
            yield {"ours": json.loads(ours.stdout.readline())["bootstrap"], "kafka": real.address}
        finally:
            ours.terminate()


def measure(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Best of the rounds for heartbeats, median for targets, of both brokers."""
    with tempfile.TemporaryDirectory() as folder, peers(Path(folder)) as addresses:
        both = {name: Peer(address) for name, address in addresses.items()}
        best: dict[str, dict[str, float]] = {name: {} for name in both}
        for _ in range(rounds):
            for name, peer in both.items():
                for group in peer.groups:
                    key = f"heartbeat_{group}_us"
                    best[name][key] = min(best[name].get(key, float("inf")), peer.heartbeat_us(group))
        targets: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(TARGETS):
            for name, peer in both.items():
                targets[name].append(peer.target_ms())
        for name, peer in both.items():
            best[name] |= {"target_ms": statistics.median(targets[name])}
            best[name] |= {f"joins_{group}_s": taken for group, taken in peer.joined_s.items()}
    return best


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    found = measure(arguments.parse_args().rounds)
    print(json.dumps({name: {key: round(value, 2) for key, value in values.items()} for name, values in found.items()}, indent=1))
