"""The errors of rules for faults: a client gets the response that Kafka's own `getErrorResponse` makes of its request."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fletchlog._core import served_apis
from judges.interop import kafka
from pytest_fletchlog.kafka import Kafka

WIRE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "wire"
ERROR = "NOT_COORDINATOR"
# API key -> how ours differs, and why no client is misled
DIFFERENT = {
    3: "without a topic in the request there is no place for the error before version 13: ours carries the request out, Kafka's names no broker",
    35: "the same before version 3: ours puts it into the directories",
    46: "Kafka lists the partitions of the request as being moved to nowhere; the error is the same",
    50: "Kafka adds a user without a name",
}


def recorded() -> list[bytes]:
    """Requests of a real Kafka's clients, without their size."""
    lines = [line for name in ("vectors.jsonl", "vectors-4.4.jsonl") for line in (WIRE / name).read_text(encoding="utf-8").splitlines()]
    return [bytes.fromhex(json.loads(line)["requestHex"]) for line in lines]


def answer(bootstrap: str, request: bytes) -> bytes | None:
    """The response over a connection; None: it was closed, or there is none (acks=0)."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=1) as peer, peer.makefile("rb") as stream:
        peer.sendall(struct.pack(">i", len(request)) + request)
        peer.shutdown(socket.SHUT_WR)
        size = stream.read(4)
        return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else None


def plain(said: str) -> str:
    """Without texts: ours have none."""
    said = re.sub(r"(errorMessage|ErrorMessage)=('(?:[^'\\]|\\.)*'|null)", r"\1=*", said)
    if said.startswith("ProduceResponseData"):
        # Kafka's own order is that of a hash table.
        said = str(sorted(re.findall(r"name='[^']*'|topicId=[^,]*|PartitionProduceResponse\(.*?leaderEpoch=-1\)\)", said)))
    return said


def test_an_error_is_where_kafka_puts_it(count: Callable[..., None]) -> None:
    apis = [name for name, *_ in served_apis()]
    with Kafka() as opened:
        opened.faults.on(api=apis).error(ERROR)
        pairs = [(request, response) for request in recorded() if (response := answer(opened.bootstrap, request)) is not None]
    lines = "\n".join(f"{ERROR} {request.hex()} {response.hex()}" for request, response in pairs)
    command = [*kafka.JVM, "-cp", kafka.classpath("errors", [("kafka-clients", kafka.NEWEST)]), "org.apache.kafka.common.requests.ErrorResponses"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    counts: Counter[str] = Counter()
    different: dict[tuple[int, int], tuple[str, str]] = {}
    for (request, _), line in zip(pairs, done.stdout.splitlines(), strict=True):
        expected, found = line.split("\t")
        key, version = struct.unpack(">hh", request[:4])
        if expected == "-":
            counts["none of Kafka's"] += 1
        elif plain(expected) == plain(found):
            counts["equal"] += 1
        elif key in DIFFERENT:
            counts["different for a known reason"] += 1
        else:
            different.setdefault((key, version), (plain(expected), plain(found)))
    count("35 errors of rules", **{what.replace(" ", "_"): number for what, number in counts.items()})
    shown = "\n".join(f"{key}\n  kafka {expected}\n  ours  {found}" for key, (expected, found) in sorted(different.items()))
    assert not different, f"{dict(counts)}\n{shown}"
