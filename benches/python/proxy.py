"""What `fletchlog proxy` costs: throughput of confluent-kafka and the latency of a record through it, against the same without it.

Three processes: a listener in memory (or the cluster that is given), the proxy, and this client. Direct and through the proxy in turns. A latency is
that of an acks=1 record of confluent-kafka, sent when the one before was acknowledged. On a busy machine the shares vary by a third from run to run: the
processor time that the proxy takes for a GB, which is printed too, does not.

Alone: `python benches/python/proxy.py [--cluster HOST:PORT] [--rounds 5]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

VALUE, RECORDS, LATENCIES = b"x" * 1000, 200_000, 3_000
# limits: share of the direct throughput, ms more of the 99th percentile
SHARE, MORE_MS = 0.8, 1.0


@contextlib.contextmanager
def process_with_id(*words: str) -> Iterator[tuple[str, int]]:
    """The bootstrap servers of a `fletchlog` that serves, and its process id."""
    command = [sys.executable, "-m", "fletchlog", *words, "--listen", "127.0.0.1:0", "--print-address", "--with-parent"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        assert started.stdout is not None
        yield json.loads(started.stdout.readline())["bootstrap"], started.pid
        started.terminate()


@contextlib.contextmanager
def process(*words: str) -> Iterator[str]:
    """Its bootstrap servers."""
    with process_with_id(*words) as (bootstrap, _):
        yield bootstrap


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def produced(bootstrap: str, topic: str) -> float:
    """MB/s of a producer, until everything is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": RECORDS})
    producer.list_topics(topic, timeout=30)
    begin = time.perf_counter()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(60) == 0
    return RECORDS * len(VALUE) / (time.perf_counter() - begin) / 1e6


def consumed(bootstrap: str, topic: str) -> float:
    """MB/s of a consumer, from its first record on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "fetch.message.max.bytes": 8_000_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(30) is not None
    begin, read = time.perf_counter(), 1
    while read < RECORDS:
        read += len(consumer.consume(min(10_000, RECORDS - read), timeout=30))
    taken = time.perf_counter() - begin
    consumer.close()
    return (RECORDS - 1) * len(VALUE) / taken / 1e6


def latencies(bootstrap: str, topic: str) -> list[float]:
    """Milliseconds from the send of each record to its acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    producer.list_topics(topic, timeout=30)
    taken = []
    for number in range(LATENCIES + 200):
        begin = time.perf_counter()
        producer.produce(topic, b"v", partition=0)
        producer.flush(30)
        if number >= 200:
            taken.append((time.perf_counter() - begin) * 1000)
    return taken


def main() -> int:
    """Prints the figures; 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", help="HOST:PORT of a cluster; default: a listener in memory")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        direct = given.cluster or stack.enter_context(process("serve", "--memory"))
        relayed, pid = stack.enter_context(process_with_id("proxy", f"kafka://{direct}"))
        ways = {"direct": direct, "proxy": relayed}
        found: dict[str, dict[str, list[float]]] = {way: {"produce": [], "consume": [], "p50": [], "p99": []} for way in ways}
        admin = AdminClient({"bootstrap.servers": direct})
        for _ in range(given.rounds):
            for way, bootstrap in ways.items():
                topic = f"bench-{uuid.uuid4().hex[:8]}"
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
                found[way]["produce"].append(produced(bootstrap, topic))
                found[way]["consume"].append(consumed(bootstrap, topic))
                taken = statistics.quantiles(latencies(bootstrap, topic), n=100)
                found[way]["p50"].append(taken[49])
                found[way]["p99"].append(taken[98])
                admin.delete_topics([topic])[topic].result()
        gigabytes = given.rounds * 2 * RECORDS * len(VALUE) / 1e9
        print(f"{processor_seconds(pid) / gigabytes:.2f} s of a processor for a GB through the proxy, {LATENCIES} single records included")
    best = {way: {"produce": max(of["produce"]), "consume": max(of["consume"]), "p50": min(of["p50"]), "p99": min(of["p99"])} for way, of in found.items()}
    worse = False
    for what in ("produce", "consume"):
        share = best["proxy"][what] / best["direct"][what]
        worse |= share < SHARE
        print(f"{what}: {best['proxy'][what]:.0f} MB/s through the proxy, {best['direct'][what]:.0f} MB/s direct: {share:.2f} (at least {SHARE})")
    for what in ("p50", "p99"):
        more = best["proxy"][what] - best["direct"][what]
        print(f"{what} of a record: {best['proxy'][what]:.3f} ms through the proxy, {best['direct'][what]:.3f} ms direct: {more:.3f} ms more (below {MORE_MS})")
        worse |= more >= MORE_MS
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
