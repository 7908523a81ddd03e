"""Our clients on a broker over TCP, against Kafka's own tools, confluent-kafka and a bare socket, in one run.

    python benches/python/remote.py                       # a real Kafka 4.3.1, fetched with Maven (JDK 17)
    python benches/python/remote.py --broker fletchlog    # fletchlog in a process of its own

Candidates read the same topic of 4 partitions, page cache warm; they take turns and the best round counts. Ours use stock settings:
each poll is taken as one Arrow batch. `confluent` is the tuned consume loop of other_client.py into pyarrow. `java` is
kafka-consumer-perf-test, its rate without the start of the JVM and the rebalance. `bare` asks for 50 MiB a partition and throws the
answers away: what the broker can give. Writing: `send_arrow`, acks=all, until every row is acknowledged, against
kafka-producer-perf-test with stock settings. `tls_*` are ours over TLS, with the broker's certificate checked. Targets: benches/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import fletchlog as fl
import other_client

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))
from judges.interop import kafka  # noqa: E402 - the interop tests know how to fetch and start Kafka
from judges.interop.kraft import Kraft, format_directory  # noqa: E402
from tests.support.certificates import Authority  # noqa: E402 - of the tests, as are the two below

RELEASE = "4.3.1"
PARTITIONS = other_client.PARTITIONS
CHUNK = 131_072
CANDIDATES = ["bare", "tls_bare", "consumer", "tls_consumer", "scan", "tls_scan", "confluent", "java_consumer", "send_arrow", "tls_send_arrow", "java_producer"]
# of bin/kafka-server-start.sh
JVM = ["java", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
# value sizes, and how many records of each
SIZES = {10: 20_000_000, 100: 5_000_000, 1000: 1_000_000}
SECURE = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"}
# a process of fletchlog with both listeners; it ends with its standard input
SERVE = """
import json, sys
import fletchlog as fl
with fl.Broker(sys.argv[1], create=True) as broker, broker.listen() as plain, broker.listen(config=json.loads(sys.argv[2])) as secure:
    print(json.dumps([plain.bootstrap, secure.bootstrap]), flush=True)
    sys.stdin.read()
"""
# of a partition in a bare fetch
FETCH_BYTES = 50 << 20


@contextlib.contextmanager
def served(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a broker on loopback, and the configuration of a client that speaks TLS with it; gone with the context."""
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-") as directory:
        scratch = Path(directory)
        authority = Authority(scratch)
        config = {"ssl.keystore.type": "PEM", "ssl.keystore.location": authority.issue("broker", ("127.0.0.1",))[0]}
        client = {"security.protocol": "SSL", "ssl.truststore.location": authority.file}
        if kind == "kafka":
            kafka.JVM[:] = JVM
            with Kraft(RELEASE, format_directory(scratch / "data"), scratch, config=config | SECURE, secure=("SSL",)) as broker:
                yield broker.address, {"bootstrap.servers": broker.address_of("SSL"), **client}
            return
        command = [sys.executable, "-c", SERVE, str(scratch / "data"), json.dumps(config | {"security.protocol": "SSL"})]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            plain, secure = json.loads(process.stdout.readline())
            yield plain, {"bootstrap.servers": secure, **client}
            process.terminate()


def table(records: int, size: int) -> pa.Table:
    """Values of one size, evenly over the partitions, in chunks."""
    values = pa.array([bytes(range(48, 58)) * (size // 10)] * CHUNK, pa.binary())
    numbers = pa.array([row * PARTITIONS // CHUNK for row in range(CHUNK)], pa.int32())
    chunk = pa.record_batch({"value": values, "partition": numbers})
    whole, rest = divmod(records, CHUNK)
    return pa.Table.from_batches([chunk] * whole + ([chunk.slice(0, rest)] if rest else []))


class Bench:
    """What one broker gives and takes, with values of one size."""

    def __init__(self, address: str, tls: dict[str, Any], size: int, records: int) -> None:
        self.address, self.size, self.records = address, size, records
        self.plain, self.tls = {"bootstrap.servers": address}, tls
        self.cluster = fl.Cluster(self.plain)
        self.topic = f"read-{size}"
        self._rows = table(records, size)
        self._written = 0
        self.cluster.create_topic(self.topic, partitions=PARTITIONS)
        self._send(self.topic)

    def _send(self, topic: str, config: dict[str, Any] | None = None) -> None:
        with fl.Producer(config or self.plain) as producer:
            producer.send_arrow(topic, self._rows)

    def new_topic(self) -> str:
        """A topic to write to."""
        self._written += 1
        name = f"write-{self.size}-{self._written}"
        self.cluster.create_topic(name, partitions=PARTITIONS)
        return name

    def consumer(self) -> float:
        """Million records a second of our consumer."""
        return self._rate(lambda: self._poll(self.plain))

    def tls_consumer(self) -> float:
        """The same over TLS."""
        return self._rate(lambda: self._poll(self.tls))

    def _poll(self, config: dict[str, Any]) -> None:
        seen = 0
        with fl.Consumer(config | {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([fl.TopicPartition(self.topic, p) for p in range(PARTITIONS)])
            while seen < self.records:
                seen += pa.record_batch(consumer.poll(timeout_ms=5000)).num_rows

    def scan(self) -> float:
        """Of `Cluster.scan`."""
        return self._rate(lambda: sum(batch.num_rows for batch in self.cluster.scan(self.topic)))

    def tls_scan(self) -> float:
        """The same over TLS."""
        with fl.Cluster(self.tls) as cluster:
            return self._rate(lambda: sum(batch.num_rows for batch in cluster.scan(self.topic)))

    def confluent(self) -> float:
        """Of confluent-kafka's tuned loop."""
        return self._rate(other_client.Filled(self.address, self.topic, self.records).consume)

    def bare(self) -> float:
        """Of a socket that asks for everything and looks at nothing but where the next fetch begins."""
        return self._rate(lambda: [drain(self.address, self.topic, partition) for partition in range(PARTITIONS)])

    def tls_bare(self) -> float:
        """The same over TLS, by OpenSSL."""
        context = ssl.create_default_context(cafile=self.tls["ssl.truststore.location"])
        return self._rate(lambda: [drain(self.tls["bootstrap.servers"], self.topic, partition, context) for partition in range(PARTITIONS)])

    def java_consumer(self) -> float:
        """Of kafka-consumer-perf-test."""
        printed = java("ConsumerPerformance", "--bootstrap-server", self.address, "--topic", self.topic, "--messages", str(self.records), "--timeout", "30000")
        line = next(line for line in printed.splitlines() if re.match(r"\d{4}-", line))
        return float(line.split(",")[9]) / 1e6

    def send_arrow(self) -> float:
        """Of our producer."""
        topic = self.new_topic()
        return self._rate(lambda: self._send(topic))

    def tls_send_arrow(self) -> float:
        """The same over TLS."""
        topic = self.new_topic()
        return self._rate(lambda: self._send(topic, self.tls))

    def java_producer(self) -> float:
        """Of kafka-producer-perf-test."""
        topic, records, size = self.new_topic(), str(self.records), str(self.size)
        wanted = ["--num-records", records, "--record-size", size, "--throughput", "-1", "--bootstrap-server", self.address]
        printed = java("ProducerPerformance", "--topic", topic, *wanted)
        return float(re.findall(r"([\d.]+) records/sec", printed)[-1]) / 1e6

    def _rate(self, call: Callable[[], object]) -> float:
        began = time.perf_counter()
        call()
        return self.records / (time.perf_counter() - began) / 1e6


def drain(address: str, topic: str, partition: int, context: ssl.SSLContext | None = None) -> None:
    """Reads a partition to its end with Fetch requests of version 4."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) if context else plain as bare:
        name, buffer, offset = topic.encode(), memoryview(bytearray(FETCH_BYTES + (2 << 20))), 0
        while True:
            header = struct.pack(">hhih5s", 1, 4, 1, 5, b"bench")
            asked = struct.pack(f">iiiibih{len(name)}siiqi", -1, 500, 1, FETCH_BYTES, 0, 1, len(name), name, 1, partition, offset, FETCH_BYTES)
            bare.sendall(struct.pack(">i", len(header) + len(asked)) + header + asked)
            left = length = struct.unpack(">i", b"".join(bare.recv(1) for _ in range(4)))[0]
            while left:
                left -= bare.recv_into(buffer[length - left : length])
            # correlation id, throttle time, topics, the name, partitions; then the partition's fields
            at = 4 + 4 + 4 + 2 + len(name) + 4
            _, error, end, _, aborted = struct.unpack_from(">ihqqi", buffer, at)
            size = struct.unpack_from(">i", buffer, at + 26 + max(aborted, 0) * 16)[0]
            assert error == 0
            batches, last = at + 30 + max(aborted, 0) * 16, offset
            while size >= 61:
                base, rest = struct.unpack_from(">qi", buffer, batches)
                if size < rest + 12:
                    break
                last = base + struct.unpack_from(">i", buffer, batches + 23)[0] + 1
                batches, size = batches + rest + 12, size - rest - 12
            offset = last
            if offset >= end:
                return


def java(tool: str, *arguments: str) -> str:
    """What a tool of Kafka's prints."""
    libraries = ":".join(f"{kafka.jars(*artifact)}/*" for artifact in [*kafka.server(RELEASE), kafka.LOGGING])
    command = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", libraries, f"org.apache.kafka.tools.{tool}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=["kafka", "fletchlog"], default="kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="of values, in bytes")
    parser.add_argument("--only", nargs="*", default=CANDIDATES)
    arguments = parser.parse_args()
    with served(arguments.broker) as (address, tls):
        for size in arguments.sizes:
            bench = Bench(address, tls, size, SIZES[size])
            best: dict[str, float] = {}
            for _ in range(arguments.rounds):
                for name in arguments.only:
                    best[name] = max(best.get(name, 0.0), getattr(bench, name)())
            pairs = [
                ("consumer", "confluent"),
                ("consumer", "java_consumer"),
                ("scan", "confluent"),
                ("consumer", "bare"),
                ("scan", "bare"),
                ("send_arrow", "java_producer"),
                *((name, f"tls_{name}") for name in ("bare", "consumer", "scan", "send_arrow")),
                ("tls_scan", "tls_bare"),
            ]
            ratios = {f"{ours} / {other}": round(best[ours] / best[other], 2) for ours, other in pairs if ours in best and other in best}
            rates = {name: round(rate, 2) for name, rate in best.items()}
            print(json.dumps({"broker": arguments.broker, "value_bytes": size, "million_records_per_s": rates, "ratios": ratios, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
