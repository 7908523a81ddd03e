"""A real cluster of three nodes (KRaft, three processes, each broker and controller, loopback), which a test stops, kills and starts by node id."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.ports import free_port

from .kraft import Node, format_directory, format_metadata, random_id

with warnings.catch_warnings():
    # it reads its schemas by calls that newer Pythons are to drop
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError, TopicAlreadyExistsError

NODES = (1, 2, 3)
# three JVMs beside the tests
HEAP = "256m"
# how long a cluster may take to get over a change; a busy machine needs some of it
SETTLE_SECONDS = 120
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CONFIG = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # one coordinator: the leader of the only partition
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    # a killed node is noticed soon
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "log.dir.failure.timeout.ms": "5000",
}


class Cluster:
    """Three nodes; leaving the `with` block ends them."""

    def __init__(self, release: str, scratch: Path, config: dict[str, str] | None = None) -> None:
        self.release = release
        cluster = random_id()
        ports = {node: (free_port(), free_port()) for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in ports.items())
        self.nodes: dict[int, Node] = {}
        for node, (port, controller) in ports.items():
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "broker.rack": f"rack-{node}",
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(format_directory(scratch / f"data-{node}", node, cluster)),
                "metadata.log.dir": str(format_metadata(release, scratch, cluster, node)),
                **CONFIG,
                **(config or {}),
            }
            self.nodes[node] = Node(release, properties, f"127.0.0.1:{port}", scratch, HEAP)
        self.address = ",".join(node.address for node in self.nodes.values())
        self.url = f"kafka://{self.address}"

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.await_start()
            self.wait("three brokers", lambda: self._brokers() == set(NODES))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # nobody looks at the directories any more
        for node in self.nodes.values():
            node.kill()

    @contextlib.contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        """A new client of the nodes that run: it knows nothing of how the cluster was before."""
        running = [node.address for node in self.nodes.values() if node.is_running]
        admin = KafkaAdminClient(bootstrap_servers=running, bootstrap_timeout_ms=10_000, request_timeout_ms=10_000)
        try:
            yield admin
        finally:
            admin.close()

    def wait(self, what: str, reached: Callable[[], bool]) -> None:
        """Until it is so. A cluster in the middle of a change may not answer at all."""
        end = time.monotonic() + SETTLE_SECONDS
        error: KafkaError | None = None
        while time.monotonic() < end:
            try:
                if reached():
                    return
            except KafkaError as failure:
                error = failure
            time.sleep(0.3)
        message = f"no {what} within {SETTLE_SECONDS} s ({error!r}):\n" + "\n".join(node.log.read_text()[-1500:] for node in self.nodes.values())
        raise AssertionError(message)

    def create(self, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
        """A new topic with a replica on every node; returns once all of them are in sync."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=len(NODES), topic_configs=config or {})

        def created() -> bool:
            with self._admin() as admin, contextlib.suppress(TopicAlreadyExistsError):  # by a request that was not answered in time
                admin.create_topics([new])
            return True

        self.wait(f"creation of {topic}", created)
        self.wait(f"topic {topic}", lambda: len(self._partitions().get(topic, {})) == partitions)
        self.await_in_sync()

    def _brokers(self) -> set[int]:
        with self._admin() as admin:
            return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}

    def _partitions(self) -> dict[str, dict[int, dict[str, Any]]]:
        with self._admin() as admin:
            return {topic["name"]: {of["partition_index"]: of for of in topic["partitions"]} for topic in admin.describe_topics()}

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition, once one does. Of `OFFSETS` it is the coordinator of groups, of `TRANSACTIONS` that of transactions."""
        found: list[int] = []

        def led() -> bool:
            leader = self._partitions().get(topic, {}).get(partition, {}).get("leader_id")
            found[:] = [leader] if leader in self.nodes else []
            return bool(found)

        self.wait(f"leader of {topic}-{partition}", led)
        return found[0]

    def await_in_sync(self) -> None:
        """Returns once every replica of every partition is in sync."""

        def in_sync() -> bool:
            partitions = [of for topic in self._partitions().values() for of in topic.values()]
            return all(len(of["isr_nodes"]) == len(of["replica_nodes"]) and of["leader_id"] in of["isr_nodes"] for of in partitions)

        self.wait("replicas in sync", in_sync)

    def start(self, node: int) -> None:
        """Starts it again; returns once its replicas are in sync."""
        self.nodes[node].launch()
        self.nodes[node].await_start()
        self.wait(f"node {node}", lambda: node in self._brokers())
        self.await_in_sync()

    def stop(self, node: int) -> None:
        """Stops it cleanly: it hands its partitions over before it ends."""
        self.nodes[node].stop()

    def kill(self, node: int) -> None:
        """Signal 9; returns once other nodes lead what it led."""
        self.nodes[node].kill()
        left = set(NODES) - {node}
        self.wait(f"leaders without node {node}", lambda: all(of["leader_id"] in left for topic in self._partitions().values() for of in topic.values()))

    def move_leaders(self) -> int:
        """Gives every partition back to its first replica; how many moved."""
        moved = {
            name: [number for number, of in partitions.items() if of["leader_id"] != of["replica_nodes"][0]] for name, partitions in self._partitions().items()
        }
        moved = {name: numbers for name, numbers in moved.items() if numbers}
        if moved:
            with self._admin() as admin:
                admin.elect_leaders(0, moved, timeout_ms=30_000)
        return sum(map(len, moved.values()))

    def committed(self, group: str) -> dict[str, int]:
        """What a group has committed, by partition."""
        found: dict[str, int] = {}

        def known() -> bool:
            with self._admin() as admin:
                offsets = admin.list_group_offsets([group])[group]
            found.update({f"{tp.topic}-{tp.partition}": at.offset for tp, at in offsets.items() if at.offset >= 0})
            return True

        self.wait(f"offsets of {group}", known)
        return found
