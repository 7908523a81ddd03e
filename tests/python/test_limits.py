"""Numbers far beyond reason, empty and giant inputs: a named error at once, never the machine's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl

HUGE = 2**31 - 1
# What a child may have, interpreter and pyarrow included: an abort for lack of memory is then soon seen.
MEMORY_BYTES = 2 << 30


@pytest.mark.parametrize("nodes", [1001, HUGE, 2**32 - 1])
def test_a_broker_has_at_most_a_thousand_nodes(tmp_path: Path, nodes: int) -> None:
    for make in (lambda: fl.Broker.in_memory(nodes=nodes), lambda: fl.Broker(tmp_path / "log", create=True, nodes=nodes)):
        with pytest.raises(fl.errors.KafkaError, match="1 to 1000 nodes"):
            make()


def test_a_topic_has_at_most_ten_thousand_partitions_to_begin_with(broker: fl.Broker) -> None:
    with pytest.raises(fl.errors.KafkaError, match="1 to 10000"):
        broker.create_topic("t", partitions=HUGE)
    for name in ("offsets.topic.num.partitions", "transaction.state.log.num.partitions"):
        with pytest.raises(fl.errors.KafkaError, match=name):
            fl.Broker.in_memory(config={name: HUGE})


@pytest.mark.parametrize(("key", "value"), [("nodes", HUGE), ("partitions", HUGE), ("nodes", -1), ("partitions", 0)])
def test_a_damaged_number_in_the_metadata_is_named(tmp_path: Path, key: str, value: int) -> None:
    path = tmp_path / "log"
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t")
    file = path / "fletchlog.metadata"
    metadata = json.loads(file.read_text())
    (metadata if key == "nodes" else metadata["topics"][0])[key] = value
    file.write_text(json.dumps(metadata))
    for read_only in (False, True):
        with pytest.raises(fl.errors.KafkaError, match=r"fletchlog\.metadata"):
            fl.Broker(path, read_only=read_only)


def test_a_directory_that_names_a_partition_without_bound_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=M1abcdefQ0iRkY0aVnM8rg\n")
    (tmp_path / f"t-{HUGE - 1}").mkdir()
    with pytest.raises(fl.errors.KafkaError, match=f"t-{HUGE - 1}"):
        fl.Broker(tmp_path, read_only=True)


PIPES = ["t-0/00000000000000000000.log", "t-0/00000000000000000005.log", "t-0/00000000000000000000.index", "recovery-point-offset-checkpoint"]
OPEN = """
import sys
import fletchlog as fl
for read_only in (True, False):
    try:
        with fl.Broker(sys.argv[1], read_only=read_only) as broker:
            broker.scan("t").to_pyarrow()
    except fl.errors.KafkaError as error:
        assert sys.argv[1] in str(error), error
"""


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_place_of_a_file_is_named_and_nobody_waits_for_its_other_end(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v").result(10)
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    subprocess.run([sys.executable, "-c", OPEN, str(path)], timeout=60, check=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fl.assign.range({"t": HUGE}, {"m": ["t"]}),
        lambda: fl.assign.sticky({"t": 600_000, "u": 600_000}, {"m": ["t"]}),
        lambda: fl.assign.legacy_range({"t": HUGE}, {"c": {"t": 1}}),
        lambda: fl.assign.legacy_range({"t": 1}, {"c": {"t": HUGE}}),
    ],
)
def test_an_assignment_lists_at_most_a_million_partitions(call: Callable[[], object]) -> None:
    with pytest.raises(fl.errors.InvalidArgumentError, match="at most 1000000"):
        call()


def test_nothing_is_as_good_as_something(broker: fl.Broker) -> None:
    broker.create_topic("t")
    empty = pa.table({"value": pa.array([], pa.binary())})
    with fl.Producer(broker) as producer, fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        producer.send_arrow("t", empty)
        producer.send("t", value=b"", key=b"", headers=[("", b""), ("", None)])
        producer.send("t", value=None)
        producer.flush()
        consumer.assign([fl.TopicPartition("t", 0)])
        records = list(consumer.poll(timeout_ms=5000))
        assert [(record.key, record.value) for record in records] == [(b"", b""), (None, None)]
        assert broker.read_batches("t", 0, 2, 0) == b""
        assert broker.scan("t", start_offset=2).to_pyarrow().num_rows == 0
        assert fl.assign.range({}, {}) == {}
        consumer.assign([])


BOMB = """
import resource, struct, sys
import pyarrow as pa
import fletchlog as fl
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
piece = pa.compress(bytes(8 << 20), codec="zstd", asbytes=True)
body = piece * ((1 << 20) // len(piece))
# A batch of one record: header of 61 bytes, codec 4, CRC over everything behind it
head = struct.pack(">hiqqqhii", 4, 0, 0, 0, -1, -1, -1, 1)
def crc32c(data):
    import array
    table = array.array("L", [0]) * 256
    for i in range(256):
        c = i
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        table[i] = c
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
bomb = struct.pack(">qiibI", 0, 49 + len(body), 0, 2, crc32c(head + body)) + head + body
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with fl.Broker(sys.argv[1], create=True) as broker:
    broker.create_topic("t", config={"max.message.bytes": 1 << 30})
    try:
        broker.append_batches("t", 0, bomb)
    except fl.errors.KafkaError as error:
        print(type(error).__name__, "268435456" in str(error))
# Another program has put it there
with open(sys.argv[1] + "/t-0/00000000000000000000.log", "wb") as log:
    log.write(bomb)
with fl.Broker(sys.argv[1], read_only=True) as broker:
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "fletchlog.decompression.limit.bytes": 1 << 20}) as consumer:
        consumer.assign([("t", 0)])
        for call in (lambda: consumer.poll(timeout_ms=1000), lambda: consumer.poll(timeout_ms=1000)):
            try:
                call()
            except fl.errors.KafkaError as error:
                print(type(error).__name__, "1048576" in str(error), "fletchlog.decompression.limit.bytes" in str(error))
    try:
        broker.scan("t").to_pyarrow()
    except fl.errors.KafkaError as error:
        print(type(error).__name__, "268435456" in str(error))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and measures memory as Linux does")
def test_a_megabyte_that_expands_to_ten_gigabytes_is_an_error_within_the_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BOMB, str(tmp_path / "log"), str(MEMORY_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "MALLOC_ARENA_MAX": "2"})
    assert (done.returncode, done.stderr) == (0, "")
    *errors, mebibytes = done.stdout.splitlines()
    assert errors == ["InvalidRecordError True", *["CorruptRecordError True True"] * 2, "CorruptRecordError True"]
    # The limit of a log is 256 MiB; a buffer that grows has its old half beside it
    assert int(mebibytes) < 2 * 256 + 32


def test_rows_that_fill_the_memory_with_one_batch_per_partition_do_not_wait_for_linger(broker: fl.Broker) -> None:
    broker.create_topic("many", partitions=64)
    rows = pa.table({"partition": pa.array(list(range(64)) * 4, pa.int32()), "value": pa.array([b"v"] * 256, pa.binary())})
    # memory for 16 batches; each partition needs one, and none is ever full
    with fl.Producer(broker, {"buffer.memory": 16 * 16384, "linger.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}) as producer:
        producer.send_arrow("many", rows)
    assert {p: len(list(broker.scan("many", partition=p).to_pyarrow().column("offset"))) for p in range(64)} == dict.fromkeys(range(64), 4)
