"""A real broker (KRaft, one node, loopback) on a log directory that it did not write."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import fletchlog as fl
from tests.support.ports import free_port

from . import kafka

NODE = 1
START_SECONDS = 180
OWN_PARTITIONS = 50
NUMBERS = {"__consumer_offsets": "offsets.topic.num.partitions", "__share_group_state": "share.coordinator.state.topic.num.partitions"}
# topic properties that the broker is to follow; the others (small segments) are only ours
SHARED = ["message.timestamp.type", "compression.type", "cleanup.policy"]


def meta_properties(directory: Path) -> dict[str, str]:
    """Of a formatted log directory."""
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def random_id() -> str:
    """A cluster, directory or topic id as Kafka prints it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_directory(directory: Path, node: int = NODE, cluster: str | None = None) -> Path:
    """A new log directory for a broker, of a cluster of its own unless one is named."""
    directory.mkdir()
    (directory / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id={cluster or random_id()}\ndirectory.id={random_id()}\n")
    return directory


def format_metadata(release: str, scratch: Path, cluster: str, node: int = NODE, topics: str = "") -> Path:
    """A new metadata directory for a node of a cluster that has these topics (`cluster_of`)."""
    directory = scratch / f"metadata-{time.monotonic_ns()}"
    directory.mkdir()
    kafka.run("server", kafka.server(release), "Bootstrap", str(directory), cluster, str(node), stdin=topics)
    return directory


def cluster_of(directory: Path, config: dict[str, str] | None = None) -> str:
    """The topics of a directory that fletchlog wrote, for `Bootstrap`: names, ids and partitions as the directory has them. `config`: properties
    that say how many partitions Kafka's own topics have."""
    meta = meta_properties(directory)
    lines = []
    with fl.Broker(directory, read_only=True) as broker:
        for name in broker.topics(include_internal=True):
            topic = broker.describe_topic(name)
            checkpoints = directory.glob(f"{name}-*/leader-epoch-checkpoint")
            epochs = [int(line.split()[0]) for path in checkpoints for line in path.read_text().splitlines()[2:]]
            # of Kafka's own topics the directory has the partitions that were needed so far
            partitions = int((config or {}).get(NUMBERS.get(name, ""), OWN_PARTITIONS)) if name.startswith("__") else len(topic.partitions)
            lines.append(f"topic {name} {topic.topic_id} {partitions} {max(epochs, default=0)} {meta['directory.id']}")
            lines += [f"config {name} {key} {topic.config[key]}" for key in SHARED if key in topic.config]
    return "".join(line + "\n" for line in lines)


class Node:
    """A broker's process on a file of properties."""

    def __init__(self, release: str, properties: dict[str, str], address: str, scratch: Path, heap: str = "512m") -> None:
        """`address`: the listener that accepts once it runs."""
        self.release = release
        self.address = address
        self.log = scratch / f"broker-{release}-{time.monotonic_ns()}.log"
        self._heap = heap
        self._properties = scratch / f"server-{time.monotonic_ns()}.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Neither stopped nor killed."""
        return self._process is not None

    def launch(self) -> None:
        """Starts the process, and waits for nothing."""
        command = [*kafka.JVM, f"-Xmx{self._heap}", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-cp", kafka.classpath("server", kafka.server(self.release)), "kafka.Kafka", str(self._properties)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def await_start(self) -> None:
        """Returns once clients can connect."""
        assert self._process is not None
        host, port = self.address.rsplit(":", 1)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                time.sleep(0.1)
                continue
            return
        self.kill()
        message = f"the {self.release} broker did not start:\n{self.log.read_text()[-6000:]}"
        raise RuntimeError(message)

    def stop(self) -> None:
        """A clean stop: everything flushed, indexes trimmed, the marker written."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(60) in (0, 143), self.log.read_text()[-6000:]
            self._process = None

    def kill(self) -> None:
        """Signal 9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


class Kraft(Node):
    """A running broker; leaving the `with` block stops it cleanly."""

    def __init__(
        self,
        release: str,
        directory: Path,
        scratch: Path,
        cluster: str = "",
        config: dict[str, str] | None = None,
        protocol: str = "PLAINTEXT",
        secure: tuple[str, ...] = (),
        heap: str = "512m",
    ) -> None:
        """`secure`: security protocols beside `protocol`, each with a port of its own (`address_of`)."""
        self.directory = directory
        port, controller = free_port(), free_port()
        self._secure = {protocol: free_port() for protocol in secure}
        secured = "".join(f",{protocol}://127.0.0.1:{port}" for protocol, port in self._secure.items())
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(NODE),
            "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller}",
            "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{secured}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory),
            "metadata.log.dir": str(format_metadata(release, scratch, meta_properties(directory)["cluster.id"], topics=cluster)),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # what the test wrote stays as it is
            "log.cleaner.enable": "false",
            "log.retention.ms": "-1",
            "auto.create.topics.enable": "false",
            **(config or {}),
        }
        super().__init__(release, properties, f"127.0.0.1:{port}", scratch, heap)

    def address_of(self, protocol: str) -> str:
        """`bootstrap.servers` of a security protocol."""
        return f"127.0.0.1:{self._secure[protocol]}"

    def __enter__(self) -> Self:
        self.launch()
        self.await_start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


def strays(directory: Path) -> list[str]:
    """Directories that a broker did not recognise."""
    return [path.name for path in directory.iterdir() if path.name.endswith(("-stray", "-delete", "-future"))]
