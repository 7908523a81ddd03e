"""Kafka's DumpLogSegments over a directory: what it printed, and everything it complained about."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from . import kafka

TOOL = {release: ("org.apache." if release.startswith("4.") else "") + "kafka.tools.DumpLogSegments" for release in kafka.SERVERS}
HEX = ["--key-decoder-class", "HexDecoder", "--value-decoder-class", "HexDecoder"]

RECORD = re.compile(
    r"\| offset: (\d+) (CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)(?: sequence: (-?\d+))?"
    r" headerKeys: \[(.*)\](?: key: 0x([0-9a-f]*))?(?: payload: 0x([0-9a-f]*))?(?: endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: \d+)?$"
)
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* producerId: (-?\d+) .* isTransactional: (\w+) isControl: (\w+) .*"
    r" (?:CreateTime|LogAppendTime): (-?\d+) .* compresscodec: (\w+) crc: \d+ isvalid: true$"
)
PRODUCER = re.compile(r"producerId: (\d+) producerEpoch: \d+ coordinatorEpoch: .* currentTxnFirstOffset: (?:None|OptionalLong.empty|\D*(\d+)\D) .*")
ABORTED = re.compile(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
MISMATCH = re.compile(r"  Index timestamp: (-?\d+), log timestamp: -1")
GAP = re.compile(r"  -?\d+ is followed by -?\d+")
# everything else that a sound file makes the tool print
HARMLESS = [
    re.compile(pattern)
    for pattern in (
        r"Dumping .*",
        r"Log starting offset: \d+",
        r"Found timestamp mismatch in :.*",
        r"offset: \d+ position: \d+",
        r"timestamp: -?\d+ offset: \d+",
        r".*\.(index|timeindex) (is empty|passed sanity check)\.",
    )
]


@dataclass
class Printed:
    """A record as the tool printed it; header values are not printed."""

    offset: int
    timestamp_type: str
    timestamp: int
    header_keys: str
    key: bytes | None
    value: bytes | None


class Step(NamedTuple):
    """A transactional batch: data (no result) or a marker, as the tool printed it."""

    first: int
    last: int
    producer_id: int
    result: str | None


class Aborted(NamedTuple):
    """A line of a .txnindex."""

    producer_id: int
    first: int
    last: int
    stable: int


@dataclass
class Dump:
    """One partition."""

    records: list[Printed] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    # per snapshot (its offset): where the open transaction of each producer began
    open_at: dict[int, dict[int, int]] = field(default_factory=dict)
    batches: int = 0
    control_batches: int = 0
    # largest timestamps of batches of which the cleaner left the header
    emptied: set[int] = field(default_factory=set)
    codecs: set[str] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def dump(release: str, directory: Path, scratch: Path, *, compacted: Collection[str] = ()) -> dict[str, Dump]:
    """Runs the tool over every partition of a copy of `directory` (it may shorten index files in place).

    Only the topics that were `compacted` may have gaps.
    """
    copy = scratch / f"copy-{release}-{directory.name}"
    shutil.copytree(directory, copy)
    partitions = sorted(path for path in copy.iterdir() if path.is_dir())
    commands = [(partition, command) for partition in partitions for command in commands_of(partition)]
    lines = "".join("\t".join(command) + "\n" for _, command in commands)
    output = kafka.run("tools", kafka.server(release), "DumpMany", TOOL[release], stdin=lines)
    shutil.rmtree(copy)
    outputs = re.split(r"^@@ (.*)\n", output, flags=re.MULTILINE)
    assert len(outputs) == 2 * len(commands) + 1, "every run of the tool ends with its outcome"
    dumps = {partition.name: Dump() for partition in partitions}
    for (partition, command), text, outcome in zip(commands, outputs[::2], outputs[1::2], strict=False):
        of = dumps[partition.name]
        read(text, of, compacted=partition.name.rpartition("-")[0] in compacted)
        if not command[0].startswith("--index-sanity") and command[0] != "--verify-index-only":
            for path in command[-1].split(","):
                of.files[Path(path).suffix] = of.files.get(Path(path).suffix, 0) + 1
        if outcome != "ok":
            of.complaints.append(f"{' '.join(command)}: {outcome}")
    for of in dumps.values():
        of.records.sort(key=lambda record: record.offset)
    return dumps


def commands_of(partition: Path) -> list[list[str]]:
    """The runs that judge every file of a partition."""
    files: dict[str, list[str]] = {}
    for path in sorted(partition.iterdir()):
        files.setdefault(path.suffix, []).append(str(path))
    if ".log" not in files:  # nothing was ever written to it, and it was not opened: a broker begins its log
        assert list(files) == [".metadata"], f"{partition}: no segment, yet {files}"
        return []
    commands = [["--deep-iteration", "--print-data-log", *HEX, "--files", ",".join(files[".log"])]]
    indexes = ",".join(files.get(".index", []) + files.get(".timeindex", []))
    if indexes:
        commands += [[*mode, "--files", indexes] for mode in ([], ["--index-sanity-check"], ["--verify-index-only"])]
    side = ",".join(files.get(".snapshot", []) + files.get(".txnindex", []))
    if side:
        commands.append(["--files", side])
    return commands


def read(output: str, into: Dump, *, compacted: bool) -> None:
    """Sorts the lines of one run into records, batches, harmless lines and complaints."""
    gaps_of, snapshot = "", -1
    for line in output.splitlines():
        if record := RECORD.fullmatch(line):
            if record[10] is None:
                into.records.append(printed(record))
            else:
                into.steps[-1] = into.steps[-1]._replace(result=record[10])
        elif batch := BATCH.fullmatch(line):
            into.batches += 1
            into.control_batches += batch[6] == "true"
            if batch[5] == "true":
                into.steps.append(Step(int(batch[1]), int(batch[2]), int(batch[4]), None))
            if batch[3] == "0":
                into.emptied.add(int(batch[7]))
            into.codecs.add(batch[8])
        elif producer := PRODUCER.fullmatch(line):
            if producer[2] is not None:
                into.open_at[snapshot][int(producer[1])] = int(producer[2])
        elif aborted := ABORTED.fullmatch(line):
            into.aborted.append(Aborted(*map(int, aborted.groups())))
        elif mismatch := MISMATCH.fullmatch(line):
            # the time index counts a batch that the cleaner emptied, the tool does not: it says this of Kafka's own logs, too
            if not compacted or int(mismatch[1]) not in into.emptied:
                into.complaints.append(line)
        elif line.startswith("Non-consecutive offsets in "):
            gaps_of = line.removeprefix("Non-consecutive offsets in ")
        elif GAP.fullmatch(line) and gaps_of:
            # the tool says this of every segment that does not begin at 0
            if line != f"  -1 is followed by {int(Path(gaps_of).stem)}" and not compacted:
                into.complaints.append(f"{gaps_of}: {line}")
        elif line.startswith("Dumping ") and line.endswith(".snapshot"):
            snapshot = int(Path(line).stem)
            into.open_at[snapshot] = {}
        elif not any(pattern.fullmatch(line) for pattern in HARMLESS):
            into.complaints.append(line)


def transactions(of: Dump) -> tuple[list[Aborted], dict[int, dict[int, int]]]:
    """What the index of aborted transactions and the snapshots have to say, derived from the batches alone.

    Kafka: ProducerStateManager#completeTxn, #lastStableOffset; TransactionIndex.
    """
    running: dict[int, int] = {}
    aborted, open_at = [], {}
    snapshots = sorted(of.open_at)
    for step in [*sorted(of.steps), None]:
        while snapshots and (step is None or step.first >= snapshots[0]):
            open_at[snapshots.pop(0)] = dict(running)
        if step is None:
            break
        first = running.pop(step.producer_id, None)
        if step.result is None:
            running[step.producer_id] = step.first if first is None else first
        elif step.result == "ABORT" and first is not None:
            aborted.append(Aborted(step.producer_id, first, step.last, min(running.values(), default=step.last + 1)))
    return aborted, open_at


def printed(record: re.Match[str]) -> Printed:
    """A record line; the sizes it names agree with the bytes it shows."""
    key, value = (None if text is None else bytes.fromhex(text) for text in (record[8], record[9]))
    assert (-1 if key is None else len(key), -1 if value is None else len(value)) == (int(record[4]), int(record[5]))
    return Printed(int(record[1]), record[2], int(record[3]), record[7], key, value)
