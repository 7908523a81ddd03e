"""`fletchlog serve`: a process that Kafka's clients connect to."""

import contextlib
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import fletchlog as fl

FLETCHLOG = [sys.executable, "-m", "fletchlog"]


def serve(*arguments, **options):
    """A serving process and its bootstrap servers."""
    process, line = start(*arguments, **options)
    return process, line["bootstrap"]


def start(*arguments, **options):
    """A serving process and what it prints."""
    command = [*FLETCHLOG, "serve", "--listen", "127.0.0.1:0", "--print-address", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, json.loads(line)


def produce(bootstrap, count, **config):
    """Sends numbers; returns those that were acknowledged."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 5000} | config)
    for number in range(count):
        value = str(number).encode()
        producer.produce("orders", value, partition=0, on_delivery=lambda error, message: error or acknowledged.append(message.value()))
        producer.poll(0)
    producer.flush(10)
    return acknowledged


def end(process, number=signal.SIGTERM):
    """Ends the process and returns its exit code."""
    process.send_signal(number)
    process.communicate(timeout=20)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_the_directory_holds_the_records(tmp_path, number):
    process, bootstrap = serve(tmp_path / "data", "--auto-create", 1)
    acknowledged = produce(bootstrap, 100)
    assert end(process, number) == 0
    with fl.Broker(tmp_path / "data", read_only=True) as broker:
        assert broker.scan("orders").to_pyarrow()["value"].to_pylist() == acknowledged
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_plan_of_faults_applies_to_its_clients_and_is_reported_at_the_end(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('[[rules]]\nname = "first"\napi = "Produce"\nnth = 1\nerror = "NOT_ENOUGH_REPLICAS"\n\n[[rules]]\napi = "Fetch"\nhold = true\n')
    process, bootstrap = serve("--memory", "--auto-create", 1, "--faults", plan)
    assert produce(bootstrap, 1) == [b"0"]
    process.send_signal(signal.SIGTERM)
    _, printed = process.communicate(timeout=20)
    assert re.search(r"rule 1 .*first.*: matched 2, applied 1\n.*rule 2 .*Fetch.*: matched 0, applied 0", printed), printed
    plan.write_text('[[rules]]\napi = "Produze"\nhold = true\n')
    done = subprocess.run([*FLETCHLOG, "serve", "--memory", "--listen", "127.0.0.1:0", "--faults", plan], capture_output=True, text=True, check=False)
    assert (done.returncode, "the rule: Kafka has no API `Produze`" in done.stderr) == (1, True), done


def test_a_schema_registry_is_served_and_has_its_schemas_after_a_kill(tmp_path):
    body = json.dumps({"schema": '"string"'}).encode()

    def served():
        process, line = start(tmp_path / "data", "--schema-registry", "127.0.0.1:0")
        return process, f"{line['schema_registry']}/subjects/a/versions"

    process, url = served()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["id"] == 1
    end(process, signal.SIGKILL)
    process, url = served()
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert json.load(answer) == [1]
    assert end(process) == 0


@pytest.mark.parametrize(("given", "offsets"), [([], [3, 4]), (["--config", "log.cleaner.enable=false"], [0, 1, 2, 3, 4])])
def test_compacted_topics_in_memory_are_compacted_as_on_a_cluster(given, offsets):
    process, bootstrap = serve("--memory", "--config", "log.cleaner.backoff.ms=50", *given)
    compacted = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config=compacted)])["orders"].result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce("orders", str(number), "key", timestamp=1_790_000_000_000 + 1000 * number)
        producer.flush(20)
    cluster = fl.Cluster(f"kafka://{bootstrap}")
    if given:
        time.sleep(0.5)  # ten rounds of a cleaner that is not to run
    deadline = time.monotonic() + 60
    # The active segment is not cleaned.
    while (left := cluster.scan("orders").to_pyarrow()["offset"].to_pylist()) != offsets and time.monotonic() < deadline:
        time.sleep(0.05)
    cluster.close()
    assert end(process) == 0
    assert left == offsets


@pytest.mark.parametrize(("given", "delay"), [([], "3000"), (["--config", "group.initial.rebalance.delay.ms=7"], "7")])
def test_first_members_of_a_group_wait_as_in_kafka_unless_told_otherwise(given, delay):
    process, bootstrap = serve("--memory", *given)
    with fl.Cluster(f"kafka://{bootstrap}") as cluster:
        described = {entry.name: entry.value for entry in cluster.describe_config()}
    assert end(process) == 0
    assert described["group.initial.rebalance.delay.ms"] == delay


def test_a_signal_that_comes_as_soon_as_it_listens_ends_it():
    for number in [signal.SIGTERM, signal.SIGINT] * 5:
        process, _ = serve("--memory")
        assert end(process, number) == 0


def test_what_was_acknowledged_survives_a_kill_and_is_served_again(tmp_path):
    process, bootstrap = serve(tmp_path, "--auto-create", 1)
    acknowledged = produce(bootstrap, 500, **{"enable.idempotence": True})
    assert end(process, signal.SIGKILL) == -signal.SIGKILL
    process, bootstrap = serve(tmp_path)
    more = produce(bootstrap, 10)
    assert end(process) == 0
    with fl.Broker(tmp_path, read_only=True) as broker:
        assert broker.scan("orders").to_pyarrow()["value"].to_pylist() == acknowledged + more


def test_connections_use_the_files_it_may_have_open_and_leave_some_to_the_logs(tmp_path):
    limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))  # noqa: E731 - runs in the child
    process, bootstrap = serve(tmp_path, "--auto-create", 1, preexec_fn=limits)
    soft = Path(f"/proc/{process.pid}/limits").read_text().split("Max open files")[1].split()[0]
    assert soft == "200"
    host, _, port = bootstrap.rpartition(":")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(100)]
        refused = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        assert refused.recv(1) == b""
        for connection in opened[:5]:
            connection.close()
        assert produce(bootstrap, 1) == [b"0"]
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert "ulimit -n" in said


def test_it_says_where_it_listens_and_what_connects():
    process, bootstrap = serve("--memory", "--auto-create", 1)
    assert produce(bootstrap, 1) == [b"0"]
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert f"serving memory at {bootstrap}" in said
    assert "(confluent-kafka-python" in said.split("connected: ")[1]


def test_properties_that_only_kafka_has_are_a_warning_if_asked_for():
    config = ["--config", "share.coordinator.threads=1", "--config", "num.partitions=3", "--config", "listener.name.plain.max.connections=7"]
    process, bootstrap = serve("--memory", "--auto-create", 1, *config, "--lenient")
    # created by a record: what `list_topics` asks for itself may come first, and it creates nothing
    assert produce(bootstrap, 1) == [b"0"]
    metadata = Producer({"bootstrap.servers": bootstrap}).list_topics("orders", timeout=10)
    assert len(metadata.topics["orders"].partitions) == 3
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert [line for line in said.splitlines() if "warning" in line] == ["warning: share.coordinator.threads is no property of this broker; it changes nothing"]
    strict = subprocess.run([*FLETCHLOG, "serve", "--memory", *config], capture_output=True, text=True, timeout=30, check=False)
    assert strict.returncode == 1
    assert "share.coordinator.threads" in strict.stderr


def test_a_directory_can_be_served_read_only_beside_its_writer(tmp_path):
    with fl.Broker(tmp_path) as broker, fl.Producer(broker) as producer:
        broker.create_topic("orders")
        process, bootstrap = serve(tmp_path, "--read-only")
        producer.send("orders", value=b"v").result()
        assert produce(bootstrap, 1) == []
        assert end(process) == 0


def test_it_ends_with_the_process_that_started_it(tmp_path):
    process, _ = serve("--memory", "--with-parent", stdin=subprocess.PIPE)
    process.communicate(timeout=20)  # closes its standard input
    assert process.returncode == 0


def test_a_signal_ends_it_cleanly_while_its_parent_holds_its_standard_input():
    process, _ = serve("--memory", "--with-parent", stdin=subprocess.PIPE)
    with process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_it_starts_without_what_takes_long_to_import():
    command = [sys.executable, "-X", "importtime", "-m", "fletchlog", "serve", "--memory", "--listen", "127.0.0.1:0", "--print-address", "--with-parent"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True)
    assert "bootstrap" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"fletchlog", "fletchlog._core", "fletchlog.cli.serve"} <= imported
    of_ours = {name for name in imported if name.split(".")[0] == "fletchlog"}
    cli = {f"fletchlog.cli.{name}" for name in ("app", "arguments", "common", "interrupts", "options", "serve", "streams", "text")}
    assert of_ours == {"fletchlog", "fletchlog._core", "fletchlog._place", "fletchlog.cli", "fletchlog.errors"} | cli
    slow = {"typer", "click", "rich", "pyarrow", "numpy", "pandas", "logging", "inspect", "argparse", "pathlib", "typing", "re", "json"}
    assert not slow & imported


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "either a directory or --memory"),
        (["--memory", "--listen", "nowhere"], "--listen wants HOST:PORT"),
        (["--memory", "--nodes", "0"], "--nodes is from 1 to 1000, not 0"),
        (["--memory", "--nodes", "99999999999999999999"], "--nodes is from 1 to 1000, not 99999999999999999999"),
        (["--memory", "--nodes", "1,4294967296"], "the id of a node is at most 2147483647, not 4294967296"),
        (["localhost:9092"], "localhost:9092 is no directory; --listen says where to listen"),
        (["--memory", "--faults", "nowhere.toml"], "--faults nowhere.toml: No such file or directory\n"),
        (["--memory", "--auto-create", "0"], "--auto-create wants"),
        (["--memory", "--config", "no.such=1"], "no.such"),
        (["--memory", "--read-only"], "--read-only is for a directory"),
        (["kafka://localhost:9092"], "is a cluster"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(arguments, text):
    done = subprocess.run([*FLETCHLOG, "serve", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr
