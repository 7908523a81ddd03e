"""What `fletchlog explain` of a session costs: seconds of processor time for a million requests, as text and as a page, and the memory.

Records a session of small requests first (three producers, six consumers in two groups, 600 bytes of a partition a fetch), if no file is given. Each figure
is that of a process of its own.

Alone: `python benches/python/explain_sessions.py [--requests 1000000] [--session FILE]`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import fletchlog as fl
from fletchlog.explain.session import Session

# limit: seconds for a million requests
MOST = 10.0
MILLION = 1_000_000
MEASURED = """
import resource, sys, time
import fletchlog as fl
explained = fl.explain.clients(sys.argv[1])
explained.page() if sys.argv[2] == "page" else explained.text()
print(len(explained.facts.lines), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def produce(address: str, number: int, stop: threading.Event) -> None:
    """Small batches, some records at a time."""
    config = {"client.id": f"producer-{number}", "batch.size": 400, "linger.ms": 0, "max.in.flight.requests.per.connection": 5}
    with fl.Producer(address, config) as producer:
        while not stop.is_set():
            for key in range(50):
                producer.send("payments" if number == 2 else "orders", value=b"x" * 50, key=b"%d" % key)
            producer.flush()


def consume(address: str, number: int, stop: threading.Event) -> None:
    """Small fetches, as a member of a group."""
    config = {
        "client.id": f"consumer-{number}", "group.id": f"g{number // 3}", "auto.offset.reset": "earliest", "max.partition.fetch.bytes": 600,
        "fetch.max.bytes": 2000, "fetch.max.wait.ms": 5, "max.poll.records": 20, "heartbeat.interval.ms": 300, "auto.commit.interval.ms": 100,
    }  # fmt: skip
    with fl.Consumer(address, config) as consumer:
        consumer.subscribe(["orders", "payments"])
        while not stop.is_set():
            consumer.poll(100)


def record(path: Path, requests: int) -> None:
    """Writes a session of about this many requests."""
    stop = threading.Event()
    with fl.Broker.in_memory() as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic, partitions=6)
        with broker.listen(record=path) as listener:
            address = f"kafka://{listener.bootstrap}"
            threads = [threading.Thread(target=produce, args=(address, number, stop)) for number in range(3)]
            threads += [threading.Thread(target=consume, args=(address, number, stop)) for number in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            session = Session(path)
            while len(session) < requests:
                time.sleep(1)
                session.read_on()
            stop.set()
            for thread in threads:
                thread.join()


def main() -> int:
    """Prints the figures; 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=MILLION)
    parser.add_argument("--session", type=Path)
    given = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as directory:
        path = given.session or Path(directory, "session.fltrace")
        if given.session is None:
            record(path, given.requests)
        for what in ("text", "page"):
            done = subprocess.run([sys.executable, "-c", MEASURED, str(path), what], check=True, capture_output=True, text=True)
            requests, seconds, memory = map(float, done.stdout.split())
            per_million = seconds * MILLION / requests
            good &= per_million <= MOST
            print(f"{what}: {per_million:.1f} s of a processor for a million requests (at most {MOST:g}), {memory:,.0f} MiB; {requests:,.0f} requests")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
