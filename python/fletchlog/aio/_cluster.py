"""`AsyncCluster`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fletchlog._closing import AsyncClosing
from fletchlog._core import Cluster
from fletchlog.aio._loop import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from datetime import datetime

    from fletchlog.aio._consumer import AsyncConsumer
    from fletchlog.types import IsolationLevel, OffsetAndTimestamp, TopicPartition

    _Partition = TopicPartition | tuple[str, int]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(verb: Callable[Concatenate[Cluster, _P], _T]) -> Callable[Concatenate[AsyncCluster, _P], Coroutine[Any, Any, _T]]:
    """The verb, awaited."""

    @functools.wraps(verb)
    async def awaited(cluster: AsyncCluster, /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        return await cluster._calls.call(verb, cluster._cluster, *arguments, **keywords)  # noqa: SLF001 - of this module

    return awaited


class AsyncCluster(AsyncClosing):
    """A `Cluster` for asyncio: each verb has the arguments and the result of the one of `Cluster`, and is awaited; so are its properties.

        async with AsyncCluster("kafka://localhost:9092") as cluster:
            await cluster.create_topic("orders", partitions=3)

    Nothing blocks the event loop, and no thread is used. One task at a time uses it: while a verb is awaited, a verb of another task raises
    `ConcurrentAccessError`. A cancelled verb, also one whose `asyncio.timeout` is over, may have been carried out.

    `scan` is awaited, except for what `tail` looks up.
    Reading the `Scan` that it returns waits in the calling thread: `await asyncio.to_thread(scan.to_pyarrow)`.

    Args:
        servers: `"kafka://HOST:PORT,..."`, or a configuration with `bootstrap.servers`.
        config: As for `Cluster`.
    """

    def __init__(self, servers: str | Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
        self._cluster = Cluster(servers, config)
        self._calls = Calls(self._cluster)

    # one line for each verb, by name: type checkers see its arguments
    alter_broker_config = _awaited(Cluster.alter_broker_config)
    alter_group_config = _awaited(Cluster.alter_group_config)
    alter_offsets = _awaited(Cluster.alter_offsets)
    alter_share_group_offsets = _awaited(Cluster.alter_share_group_offsets)
    alter_topic_config = _awaited(Cluster.alter_topic_config)
    create_acls = _awaited(Cluster.create_acls)
    create_partitions = _awaited(Cluster.create_partitions)
    create_topic = _awaited(Cluster.create_topic)
    create_topics = _awaited(Cluster.create_topics)
    delete_acls = _awaited(Cluster.delete_acls)
    delete_group = _awaited(Cluster.delete_group)
    delete_offsets = _awaited(Cluster.delete_offsets)
    delete_share_group_offsets = _awaited(Cluster.delete_share_group_offsets)
    delete_records = _awaited(Cluster.delete_records)
    delete_topic = _awaited(Cluster.delete_topic)
    delete_user_scram_credential = _awaited(Cluster.delete_user_scram_credential)
    describe_acls = _awaited(Cluster.describe_acls)
    describe_config = _awaited(Cluster.describe_config)
    describe_group = _awaited(Cluster.describe_group)
    describe_topic = _awaited(Cluster.describe_topic)
    describe_user_scram_credentials = _awaited(Cluster.describe_user_scram_credentials)
    group_offsets = _awaited(Cluster.group_offsets)
    share_group_offsets = _awaited(Cluster.share_group_offsets)
    groups = _awaited(Cluster.groups)
    lag = _awaited(Cluster.lag)
    proxy = _awaited(Cluster.proxy)
    scan = _awaited(Cluster.scan)
    topics = _awaited(Cluster.topics)
    transactions = _awaited(Cluster.transactions)
    upsert_user_scram_credential = _awaited(Cluster.upsert_user_scram_credential)

    async def beginning_offsets(self, partitions: Iterable[_Partition]) -> dict[TopicPartition, int]:
        """Log start offsets. See `Cluster.beginning_offsets`."""
        async with self._consumer() as consumer:
            return await consumer.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Iterable[_Partition], *, isolation_level: IsolationLevel = "read_uncommitted") -> dict[TopicPartition, int]:
        """End offsets. See `Cluster.end_offsets`."""
        async with self._consumer({"isolation.level": isolation_level}) as consumer:
            return await consumer.end_offsets(partitions)

    async def offsets_for_times(self, times: Mapping[_Partition, int | datetime]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the lowest offset whose timestamp is at or after the time. See `Cluster.offsets_for_times`."""
        async with self._consumer() as consumer:
            return await consumer.offsets_for_times(times)

    def _consumer(self, config: Mapping[str, Any] | None = None) -> AsyncConsumer:
        """Looks offsets up, over connections of its own."""
        from fletchlog.aio._consumer import AsyncConsumer

        return AsyncConsumer(self, config)

    async def cluster_id(self) -> str | None:
        """The cluster's id; None if it reports none."""
        found: str | None = await self._calls.call(getattr, self._cluster, "cluster_id")
        return found

    async def nodes(self) -> list[int]:
        """Ids of the nodes that are up, ascending."""
        found: list[int] = await self._calls.call(getattr, self._cluster, "nodes")
        return found

    async def controller(self) -> int | None:
        """Id of the node that is the controller; None: none is known."""
        found: int | None = await self._calls.call(getattr, self._cluster, "controller")
        return found

    async def close(self) -> None:
        """Closes the connections. Closing twice does nothing."""
        self._cluster.close()
        self._calls.close()

    def __repr__(self) -> str:
        return repr(self._cluster).replace("fletchlog.Cluster", "fletchlog.AsyncCluster", 1)


def blocking(source: object) -> Any:
    """The source of a client of the engine."""
    return source._cluster if isinstance(source, AsyncCluster) else source  # noqa: SLF001 - of this module
