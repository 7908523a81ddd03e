"""A share group over a listener and over a real Kafka: Kafka's own share consumer reads and accepts a topic.

Both brokers run at the same time, on disk, and take turns. Records of 100 bytes in 8 partitions, uncompressed, written before in batches of 16 KiB; one share consumer of Java
(`kafka-share-consumer-perf-test.sh`) of release 4.4.0 reads them in implicit mode, in a new group each round. Measured: records a second, from the tool, without the start of the
JVM; processor seconds of the broker meanwhile, from `/proc`.

Then the share consumers of three makes read the topic of our listener in turn: fletchlog's, confluent-kafka's and Java's, each in a process of its own. Measured: records a second from the
first record on, and processor seconds of the client for a million records (not of Java's, whose tool does not say).

Alone: `python benches/python/share_groups.py`; it needs Maven and a JDK, and Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
import fletchlog as fl  # noqa: E402
from judges.interop.kraft import Kraft, format_directory  # noqa: E402
from judges.interop.test_12_wire_tools import jvm  # noqa: E402

RELEASE = "4.4.0"
RECORDS, VALUE, PARTITIONS = 1_000_000, b"v" * 100, 8
ROUNDS = 3
# of a node that is alone
ALONE = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
TICKS = os.sysconf("SC_CLK_TCK")


# a share consumer in a process of its own: prints records a second, and processor seconds for a million
CLIENT = """
import json, sys, time
kind, address, group, count = *sys.argv[1:4], int(sys.argv[4])
if kind == "fletchlog":
    import fletchlog as fl
    consumer = fl.ShareConsumer(f"kafka://{address}", group=group, topics=["t"])
    poll, close = (lambda: len(consumer.poll(1000))), consumer.close
else:
    from confluent_kafka import ShareConsumer
    consumer = ShareConsumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    consumer.subscribe(["t"])
    poll, close = (lambda: sum(message.error() is None for message in consumer.poll(1.0))), consumer.close
seen, began, spent = 0, None, 0.0
while seen < count:
    now, cpu = time.perf_counter(), time.process_time()
    got = poll()
    if got and began is None:
        began, spent = now, cpu
    seen += got
took, spent = time.perf_counter() - began, time.process_time() - spent
close()
print(json.dumps({"records_per_s": seen / took, "cpu_s_a_million": spent * 1e6 / seen}))
"""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def ours(scratch: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of `fletchlog serve`."""
    command = [str(Path(sys.executable).parent / "fletchlog"), "serve", str(scratch / "ours"), "--listen", "127.0.0.1:0", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
        assert served.stdout is not None
        try:
            yield json.loads(served.stdout.readline())["bootstrap"], served.pid
        finally:
            served.terminate()


@contextlib.contextmanager
def peers(scratch: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """Address and process id of both brokers."""
    with Kraft(RELEASE, format_directory(scratch / "data"), scratch, config=ALONE, heap="2g") as real, ours(scratch) as served:
        yield {"ours": served, "kafka": (real.address, real.pid)}


def fill(address: str, records: int) -> None:
    """Writes the topic."""
    place = f"kafka://{address}"
    with fl.Cluster(place) as cluster, fl.Producer(place, {"linger.ms": 20}) as producer:
        cluster.create_topic("t", partitions=PARTITIONS)
        for number in range(records):
            producer.send("t", VALUE, partition=number * PARTITIONS // records)


def read(address: str, group: str, records: int) -> float:
    """Records a second of one share consumer."""
    with fl.Cluster(f"kafka://{address}") as cluster:
        cluster.alter_group_config(group, {"share.auto.offset.reset": "earliest"})
    words = ["--bootstrap-server", address, "--topic", "t", "--group", group, "--num-records", str(records), "--hide-header", "--timeout", "60000"]
    done = subprocess.run([*jvm(RELEASE), "org.apache.kafka.tools.ShareConsumerPerformance", *words], capture_output=True, text=True, check=True)
    # start, end, MB, MB a second, records a second, records, ms of fetching
    return float(done.stdout.strip().splitlines()[-1].split(",")[4])


def read_by(kind: str, address: str, group: str, records: int) -> dict[str, float]:
    """What a client of another make measures."""
    if kind == "java":
        return {"records_per_s": read(address, group, records)}
    with fl.Cluster(f"kafka://{address}") as cluster:
        cluster.alter_group_config(group, {"share.auto.offset.reset": "earliest"})
    done = subprocess.run([sys.executable, "-c", CLIENT, kind, address, group, str(records)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def clients(rounds: int, records: int) -> dict[str, dict[str, float]]:
    """Of each client on our listener: the best round."""
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder)) as (address, _):
        fill(address, records)
        best: dict[str, dict[str, float]] = {}
        for number in range(rounds):
            for kind in ("fletchlog", "confluent-kafka", "java"):
                found = read_by(kind, address, f"{kind}{number}", records)
                if found["records_per_s"] > best.get(kind, {}).get("records_per_s", 0.0):
                    best[kind] = found
        return best


def measure(rounds: int, records: int) -> dict[str, dict[str, float]]:
    """Of each broker: the best round's records a second, and the least processor seconds for a million records."""
    with tempfile.TemporaryDirectory() as folder, peers(Path(folder)) as both:
        best = {name: {"records_per_s": 0.0, "cpu_s_a_million": float("inf")} for name in both}
        for address, _ in both.values():
            fill(address, records)
        for number in range(rounds):
            for name, (address, pid) in both.items():
                before = cpu_seconds(pid)
                rate = read(address, f"g{number}", records)
                spent = (cpu_seconds(pid) - before) * 1e6 / records
                found = best[name]
                best[name] = {"records_per_s": max(found["records_per_s"], rate), "cpu_s_a_million": min(found["cpu_s_a_million"], spent)}
    ratio = {key: best["ours"][key] / best["kafka"][key] for key in best["ours"]}
    return best | {"ours / kafka": ratio}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--records", type=int, default=RECORDS)
    arguments.add_argument("--clients", action="store_true", help="the clients alone, on our listener")
    given = arguments.parse_args()
    found = clients(given.rounds, given.records)
    if not given.clients:
        found = measure(given.rounds, given.records) | {f"client {name}": values for name, values in found.items()}
    print(json.dumps({name: {key: round(value, 2) for key, value in values.items()} for name, values in found.items()}, indent=1))
