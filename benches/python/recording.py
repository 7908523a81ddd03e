"""What recording a session costs: throughput of confluent-kafka with it as a share of that without, through a listener and through a proxy; and how large it is.

Each server is a process of its own, as is this client; with and without in turns. The sizes are those of the sessions and of the bytes that went through.

Alone: `python benches/python/recording.py [--rounds 5]`.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from proxy import RECORDS, VALUE, consumed, process, produced

# limits: share of the throughput without, size of a session as a share of the traffic
SHARE, SIZE = 0.9, 0.01


def round_of(bootstrap: str, at: str) -> tuple[float, float]:
    """MB/s of a producer and of a consumer of a new topic of `bootstrap`, at the address `at`."""
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    rates = produced(at, topic), consumed(at, topic)
    admin.delete_topics([topic])[topic].result(30)
    return rates


def measured(kind: str, rounds: int, directory: Path) -> bool:
    """Prints the figures of a listener or a proxy; whether they are within the limits."""
    session = directory / f"{kind}.fltrace"
    recorded = ["--record", str(session)]
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(process("serve", "--memory"))
        if kind == "listener":
            beside = stack.enter_context(process("serve", "--memory", *recorded))
            ways = {"without": (plain, plain), "with": (beside, beside)}
        else:
            relayed, beside = (stack.enter_context(process("proxy", f"kafka://{plain}", *words)) for words in ([], recorded))
            ways = {"without": (plain, relayed), "with": (plain, beside)}
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name in sorted(ways, reverse=bool(number % 2)):
                rate = round_of(*ways[name])
                if number:
                    rates[name].append(rate)
        time.sleep(1.5)
    good = True
    for at, what in enumerate(("produce", "consume")):
        without, recording = (statistics.median(rate[at] for rate in rates[name]) for name in ("without", "with"))
        share = recording / without
        good &= share >= SHARE
        print(f"{kind:8} {what}: {without:7.1f} MB/s without, {recording:7.1f} with: {share:.2f} of it (at least {SHARE})")
    traffic = 2 * (rounds + 1) * RECORDS * len(VALUE)
    size = session.stat().st_size
    good &= size <= SIZE * traffic
    print(f"{kind:8} session: {size:,} bytes of {traffic:,}: {size / traffic:.5f} of it (at most {SIZE})")
    return good


def main() -> int:
    """Prints the figures; 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        good = [measured(kind, rounds, Path(directory)) for kind in ("listener", "proxy")]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
