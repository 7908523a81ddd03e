"""What 10,000 connections cost a listener, idle and with a fetch that waits, and how long `Broker.listen()` takes.

An append is an acks=1 Produce of one record and its answer, one after the other on one connection, to another topic than the fetches.
Its rate while the connections are idle is the baseline; each was answered a fetch before, so that the listener's threads are there in both
cases. The listener is a process of its own.

Alone: `python benches/python/connections.py [--connections 10000]`; a process may have 20,000 files open.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
import fletchlog as fl  # noqa: E402
from judges.attack import listener as attack  # noqa: E402

CONNECTIONS = 10_000
ROUNDS, APPENDS = 5, 2_000
LISTENS = 41
# limits: ms of listen(), bytes of an idle connection, share of the appends' rate that is left beside waiting fetches
LISTEN_MS = 5.0
IDLE_BYTES = 2048
LEFT = 0.9


def appends(address: attack.Address) -> float:
    """Appends a second: the best of the rounds."""
    request, best = attack.produce(), 0.0
    with socket.create_connection(address, timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(APPENDS):
                connection.sendall(request)
                size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
                connection.recv(size, socket.MSG_WAITALL)
            best = max(best, APPENDS / (time.perf_counter() - begin))
    return best


def listen_ms() -> float:
    """Median of `Broker.listen()`."""
    taken = []
    with fl.Broker.in_memory() as broker:
        for _ in range(LISTENS):
            begin = time.perf_counter()
            listener = broker.listen()
            taken.append((time.perf_counter() - begin) * 1000)
            listener.close()
    return statistics.median(taken)


def fetch(max_wait_ms: int) -> bytes:
    """A fetch of a topic that gets no record."""
    asked = struct.pack(">iqi", 0, 0, 1)
    return attack.frame(1, 4, struct.pack(">iiiibi", -1, max_wait_ms, 1, 1, 0, 1) + attack.text("empty") + struct.pack(">i", 1) + asked)


def measure(connections: int = CONNECTIONS) -> dict[str, float]:
    """All of it."""
    served = attack.Served(600)
    try:
        before = served.memory()
        with attack.connections(served.address, connections) as opened:
            time.sleep(1)
            idle = served.memory()
            rates = []
            for max_wait_ms in (0, 600_000):
                for connection in opened:
                    assert attack.send(connection, fetch(max_wait_ms))
                time.sleep(3)
                # The first fetches are answered at once: the threads are there in both cases.
                waiting = served.memory()
                rates.append(appends(served.address))
    finally:
        served.process.terminate()
        served.process.communicate()
    return {
        "listen_ms": listen_ms(),
        "idle_bytes": (idle - before) / connections,
        "waiting_bytes": (waiting - before) / connections,
        "appends_without": rates[0],
        "appends_beside": rates[1],
        "appends_ratio": rates[1] / rates[0],
    }


def main() -> None:
    """Prints the figures and whether they are within their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    found = measure(parser.parse_args().connections)
    met = found["listen_ms"] <= LISTEN_MS and found["idle_bytes"] <= IDLE_BYTES and found["appends_ratio"] >= LEFT
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    print(f"limits {LISTEN_MS:g} ms, {IDLE_BYTES} bytes, {LEFT:g}: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
