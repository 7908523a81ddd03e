"""`fletchlog consume --group`: whatever ends a call, the next one goes on behind the last record that was shown."""

import contextlib
import csv
import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl

# many processes, each of which starts an interpreter
pytestmark = pytest.mark.timeout(180)

# a call leaves at least so many records unread when its reader goes away: more than the smallest pipe takes
PADDING = "x" * 400
IN_A_PIPE = 30


def produce(path, partitions, numbers):
    with fl.Broker(path, create=True) as broker:
        if "t" not in broker.topics():
            broker.create_topic("t", partitions)
        with fl.Producer(broker) as producer:
            for number in numbers:
                producer.send("t", value=f"{number:06}{PADDING}".encode(), partition=number % partitions)


def committed(path, partitions):
    with fl.Broker(path, read_only=True) as broker, fl.Consumer(broker, {"group.id": "g", "enable.auto.commit": False}) as consumer:
        found = consumer.committed([("t", p) for p in range(partitions)])
    return {tp.partition: offset.offset for tp, offset in found.items() if offset is not None}


def places(lines):
    """Partition and offset of JSON lines, the last of which may be torn."""
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            found.append((row["partition"], row["offset"]))
    return found


class Calls:
    """Calls of `consume`, each of which answers what it has shown; `left` is how many records are not shown yet."""

    def __init__(self, shell, path):
        self.shell = shell
        self.path = path

    def consume(self, *words, code=0):
        done = self.shell.run("consume", self.path, "t", "--group", "g", *words)
        assert done.returncode == code, done.stderr.decode()
        return done

    def lines(self, left, n):
        return places(self.consume("-f", "jsonl", *(["-n", n] if n else [])).stdout.splitlines())

    def table(self, left, n):
        text = self.consume(*(["-n", n] if n else [])).stdout.decode()
        found = [tuple(map(int, numbers)) for numbers in re.findall(r"^│ t +│ +(\d+) │ +(\d+) │", text, re.MULTILINE)]
        assert len(found) == min(left, n or 50)
        return found

    def json(self, left, n):
        rows = json.loads(self.consume("-f", "json", *(["-n", n] if n else [])).stdout)
        return [(row["partition"], row["offset"]) for row in rows]

    def csv(self, left, n):
        rows = csv.DictReader(self.consume("-f", "csv", *(["-n", n] if n else [])).stdout.decode().splitlines())
        return [(int(row["partition"]), int(row["offset"])) for row in rows]

    def raw(self, left, n):
        return [tuple(map(int, line.split())) for line in self.consume("-f", r"%p %o\n", *(["-n", n] if n else [])).stdout.splitlines()]

    def file(self, left, n):
        out = self.path.parent / "out.jsonl"
        self.consume("-f", "jsonl", "-o", out, *(["-n", n] if n else []))
        return places(out.read_bytes().splitlines())

    def parquet(self, left, n):
        out = self.path.parent / "out.parquet"
        self.consume("-f", "parquet", "-o", out, *(["-n", n] if n else []), code=0 if left else 1)
        return [(row["partition"], row["offset"]) for row in pq.read_table(out).to_pylist()] if left else []

    def arrow(self, left, n):
        done = self.consume("-f", "arrow", *(["-n", n] if n else []), code=0 if left else 1)
        return [(row["partition"], row["offset"]) for row in pa.ipc.open_stream(done.stdout).read_all().to_pylist()] if left else []

    def full_disk(self, left, n):
        self.consume("-f", "jsonl", "-o", "/dev/full", code=1 if left else 0)
        return []

    @contextlib.contextmanager
    def start(self, *words):
        process = self.shell.start("consume", self.path, "t", "--group", "g", "-f", "jsonl", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        try:
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def head(self, left, n):
        with self.start() as process:
            read = b"" if left > n + IN_A_PIPE else process.stdout.read()
            while read.count(b"\n") < n and left > n + IN_A_PIPE:
                read += os.read(process.stdout.fileno(), 1000)
            process.stdout.close()
            assert (process.stderr.read(), process.wait()) == (b"", 0)
        return places(read.splitlines())

    def interrupted(self, left, n):
        with self.start("--follow") as process:
            read = b""
            while read.count(b"\n") < min(n, left):
                read += os.read(process.stdout.fileno(), 1000)
            process.send_signal(signal.SIGINT)
            read += process.stdout.read()
            # before it has begun, it ends without a word
            assert process.stderr.read() in ({b"interrupted\n"} if left else {b"interrupted\n", b""})
            # before Python has begun, the signal ends the process itself
            assert process.wait() in ({130} if left else {130, -signal.SIGINT})
        return places(read.splitlines())


CALLS = ("lines", "table", "json", "csv", "raw", "file", "parquet", "arrow", "full_disk", "head", "interrupted")


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    partitions=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(0, 700), st.sampled_from(CALLS), st.one_of(st.none(), st.integers(1, 120))), min_size=2, max_size=5),
)
def test_every_record_is_shown_once_to_a_group(shell, partitions, steps):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        calls = Calls(shell, path)
        written, shown = 0, Counter()
        produce(path, partitions, [])
        for more, name, n in [*steps, (0, "lines", None)]:
            produce(path, partitions, range(written, written + more))
            written += more
            shown.update(getattr(calls, name)(written - sum(shown.values()), n or (7 if name in {"head", "interrupted"} else None)))
            ends = {p: max(offset for q, offset in shown if q == p) + 1 for p in {p for p, _ in shown}}
            # a partition without records may have been read to its end, 0
            assert {p: offset for p, offset in committed(path, partitions).items() if offset} == ends
        assert set(shown.values()) <= {1}
        assert sorted(shown) == sorted((number % partitions, number // partitions) for number in range(written))


def test_a_shell_pipeline_gets_every_record_but_those_that_head_takes_away(shell):
    shell.bash("seq 1000 | fletchlog produce d t --partitions 1")
    assert len(shell.bash("fletchlog consume d t --group g | grep -c '│ null │'").stdout) > 0
    first = shell.bash("fletchlog consume d t --group g -f jsonl | head -1")
    assert (first.returncode, first.stderr) == (0, b"")
    assert json.loads(first.stdout)["offset"] == 50
    rest = [json.loads(line)["offset"] for line in shell.bash("fletchlog consume d t --group g -f jsonl").stdout.splitlines()]
    # `head` reads blocks: what it took with the first line is lost to the group, and nothing else
    assert 50 < rest[0] < 600
    assert rest == list(range(rest[0], 1000))


def test_follow_commits_while_it_runs(shell, tmp_path):
    produce(tmp_path / "d", 1, range(20))
    with Calls(shell, tmp_path / "d").start("--follow") as process:
        lines = [process.stdout.readline() for _ in range(20)]
        # killed without a warning, at some time after its reader has taken the lines
        for _ in range(200):
            if committed(tmp_path / "d", 1) == {0: 20}:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    assert places(lines) == [(0, offset) for offset in range(20)]
    assert committed(tmp_path / "d", 1) == {0: 20}


def test_a_group_that_has_read_all_has_no_lag_behind_markers_and_aborted_records(cli, tmp_path):
    data = tmp_path / "d"
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t", 3)  # nothing is in partition 2
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            for partition in (0, 1):
                with producer.transaction():
                    producer.send("t", value=b"1", partition=partition)
            producer.begin_transaction()
            for _ in range(100):
                producer.send("t", value=b"2", partition=1)
            producer.flush()
            producer.abort_transaction()
    read = ("consume", data, "t", "--group", "g", "-f", "jsonl", "-c", "isolation.level=read_committed")
    assert sorted((row["partition"], row["offset"]) for row in cli(*read).lines) == [(0, 0), (1, 0)]
    assert committed(data, 3) == {0: 2, 1: 103, 2: 0}
    assert cli("groups", "lag", data, "g", "--json").json == [{"topic": "t", "lag": 0, "without_commit": 0}]
    assert cli(*read).out == ""


@pytest.mark.parametrize("words", [["-n", 4], ["--until", "1970-01-01T00:00:00.004Z"]])
def test_a_group_goes_on_at_the_first_record_that_was_not_wanted(cli, tmp_path, words):
    with fl.Broker(tmp_path / "d", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for number in range(10):
                producer.send("t", value=b"v", timestamp_ms=number)
    assert len(cli("consume", tmp_path / "d", "t", "--group", "g", "-f", "jsonl", *words).lines) == 4
    assert committed(tmp_path / "d", 1) == {0: 4}


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
@pytest.mark.parametrize("words", [[], ["--group", "g"]], ids=["alone", "group"])
def test_a_topic_that_is_deleted_ends_the_command_that_reads_it(shell, tmp_path, words, again):
    with fl.Broker(tmp_path / "d", create=True) as broker, broker.listen() as listener:
        for topic in ("t", "other"):
            broker.create_topic(topic)
        with fl.Producer(broker) as producer:
            for number in range(2000):
                producer.send("t", value=f"{number:06}{PADDING}".encode())
        process = shell.start(
            "consume", f"kafka://{listener.bootstrap}", "t", "other", "-f", "jsonl", "-c", "fetch.max.bytes=10000", *words,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        first = process.stdout.readline()
        broker.delete_topic("t")
        if again:
            broker.create_topic("t")
        out, err = process.communicate()
    assert process.returncode == 1
    assert b"topic t was deleted while it was read" in err
    assert len(err.splitlines()) < 10
    assert [offset for _, offset in places([first, *out.splitlines()])] == list(range(1 + len(out.splitlines())))
