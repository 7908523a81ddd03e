"""Writes the seeds of `fuzz/corpus` from what real Kafka brokers wrote (tests/golden): `python tools/fuzz_seeds.py`.

Each target's input begins with the bytes that choose what it does; `rust/sim/src/fuzz` says what they mean. Only small
things are taken, a few of each kind: a fuzzer grows the rest.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import tarfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
CORPUS = ROOT / "fuzz" / "corpus"
# Longest thing taken, in bytes, and how many of each kind.
LONGEST = 700
OF_A_KIND = 3
CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
HEADER = 61
MAGIC = 2
EMPTY_SNAPSHOT = 10

taken: dict[tuple[str, object], int] = defaultdict(int)


def seed(target: str, kind: object, data: bytes) -> None:
    """Writes one input unless there are enough of its kind."""
    if len(data) > LONGEST + 32 or taken[target, kind] >= OF_A_KIND:
        return
    taken[target, kind] += 1
    directory = CORPUS / target
    directory.mkdir(parents=True, exist_ok=True)
    number = sum(count for (name, _), count in taken.items() if name == target)
    (directory / f"seed-{number:02}").write_bytes(data)


def golden_files() -> Iterator[tuple[str, bytes]]:
    """Every file of the recorded directories: base name, contents."""
    archives = [*sorted((GOLDEN / "directories").glob("*.tar.gz")), GOLDEN / "recovery-inputs.tar.gz"]
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in sorted(tar.getmembers(), key=lambda member: member.name):
                file = tar.extractfile(member) if member.isfile() else None
                if file is not None:
                    yield member.name.rsplit("/", 1)[-1], file.read()


def batches(log: bytes) -> Iterator[bytes]:
    """The whole v2 batches of a segment."""
    at = 0
    while at + HEADER <= len(log):
        size = 12 + struct.unpack_from(">i", log, at + 8)[0]
        if size < HEADER or at + size > len(log) or log[at + 16] != MAGIC:
            return
        yield log[at : at + size]
        at += size


def seeds_of_batch(batch: bytes) -> None:
    """Seeds of everything that reads a batch or what is in it."""
    attributes, delta = struct.unpack_from(">hi", batch, 21)
    producer, _, _, count = struct.unpack_from(">qhii", batch, 43)
    kind = (attributes, producer >= 0, min(count, 2), delta + 1 == count)
    seed("batch", kind, bytes([len(batch) % 256]) + batch)
    sent = bytes(8) + batch[8:]
    seed("produce", kind, bytes([len(batch) % 16]) + sent)
    if producer >= 0:
        seed("produce", "twice", b"\x07" + sent + sent)
    codec, body = attributes & 7, batch[HEADER:]
    if codec in CODECS:
        seed(CODECS[codec], min(count, 3), bytes([2 | 20 << 2]) + body)
    elif count:
        base, first = struct.unpack_from(">q", batch)[0], struct.unpack_from(">q", batch, 27)[0]
        seed("arrow_export", min(count, 3), struct.pack(">BHqq", count % 256, min(count, 65535), base, first) + body)


def old_formats() -> None:
    """One entry of each old message format, with a key, and a compressed set of two: no recording holds them."""
    for magic in (0, 1):
        time = struct.pack(">q", 1_700_000_000_000) if magic else b""

        def entry(offset: int, attributes: int, value: bytes, magic: int = magic, time: bytes = time) -> bytes:
            body = struct.pack(">bb", magic, attributes) + time + struct.pack(">i3si", 3, b"key", len(value)) + value
            return struct.pack(">qiI", offset, len(body) + 4, 0) + body

        seed("batch", ("old", magic), b"\x01" + entry(5, 0, b"value"))
        plain = mend(entry(0, 0, b"one")) + mend(entry(1, 0, b"two"))
        seed("batch", ("old compressed", magic), b"\x01" + entry(1, 1, gzip.compress(plain, mtime=0)))


def mend(entry: bytes) -> bytes:
    """An entry with its checksum."""
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


def wire_messages() -> None:
    """The smallest request and answer of every API, in its oldest and its newest version recorded."""
    steps = [json.loads(line) for line in (GOLDEN / "wire" / "vectors.jsonl").read_text().splitlines()]
    for key in sorted({step["key"] for step in steps}):
        own = [step for step in steps if step["key"] == key]
        for version in sorted({min(step["version"] for step in own), max(step["version"] for step in own)}):
            at = [step for step in own if step["version"] == version]
            request = min((step["requestHex"] for step in at), key=len)
            seed("wire_request", (key, version), b"\xff" + bytes.fromhex(request))
            answers = [step["responseHex"] for step in at if step["responseHex"]]
            seed("wire_response", (key, version), bytes([key, version]) + bytes.fromhex(min(answers, key=len)))


def main() -> None:
    """Writes all."""
    for name, data in golden_files():
        suffix = name.rsplit(".", 1)[-1]
        if suffix == "log":
            for batch in batches(data):
                seeds_of_batch(batch)
        elif suffix in ("index", "timeindex", "txnindex"):
            seed("index", (suffix, len(data) > 0), bytes([taken["index", (suffix, True)] * 7 % 256]) + data[:600])
        elif suffix == "snapshot":
            seed("snapshot", len(data) > EMPTY_SNAPSHOT, b"\x00" + data)
        elif "checkpoint" in name or suffix in ("properties", "metadata"):
            seed("checkpoint", name, data)
    old_formats()
    wire_messages()
    for codec in CODECS.values():
        seed(codec, "text", bytes([2 | 20 << 2]) + b"some text, some text, some text")
    # Structured inputs that no file holds: every kind of change to a directory, every layout of a column.
    chance = random.Random(1)
    for what in range(8):
        for mode in (0, 1):
            seed("directory", what, bytes([mode]) + struct.pack(">H", chance.randrange(30) * 8 + what) + chance.randbytes(12))
    for layout in range(7):
        types = layout * 8 + 49 * (layout % 3) + 147 * (layout % 3)
        seed("arrow_import", layout, struct.pack(">HBB", types, layout % 4, 5) + bytes(chance.choice((4, 6, 9)) for _ in range(90)))


if __name__ == "__main__":
    main()
