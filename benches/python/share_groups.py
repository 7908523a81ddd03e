"""A share group over a listener and over a real Kafka: Kafka's own share consumer reads and accepts a topic.

Both brokers run at the same time, on disk, and take turns. Records of 100 bytes in 8 partitions, uncompressed, written before in batches of 16 KiB; one share consumer of Java
(`kafka-share-consumer-perf-test.sh`) of release 4.4.0 reads them in implicit mode, in a new group each round. Measured: records a second, from the tool, without the start of the
JVM; processor seconds of the broker meanwhile, from `/proc`.

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


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def peers(scratch: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """Address and process id of both brokers."""
    command = [str(Path(sys.executable).parent / "fletchlog"), "serve", str(scratch / "ours"), "--listen", "127.0.0.1:0", "--print-address"]
    with (
        Kraft(RELEASE, format_directory(scratch / "data"), scratch, config=ALONE, heap="2g") as real,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as ours,
    ):
        assert ours.stdout is not None
        try:
            yield {"ours": (json.loads(ours.stdout.readline())["bootstrap"], ours.pid), "kafka": (real.address, real.pid)}
        finally:
            ours.terminate()


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
    given = arguments.parse_args()
    print(
        json.dumps({name: {key: round(value, 2) for key, value in values.items()} for name, values in measure(given.rounds, given.records).items()}, indent=1)
    )
