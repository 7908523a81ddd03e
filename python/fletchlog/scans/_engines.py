"""Engines whose tasks run in other processes: Ray and Daft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fletchlog.scans._plan import TopicScan


def to_ray(plan: TopicScan) -> Any:
    """A plan as a `ray.data.Dataset`.

    A task reads a partition, or a range of one, to the end that it has when Ray plans. Columns and filters by Ray's expressions reach the scan.

    Args:
        plan: Of `fletchlog.scans.plan`, with the path or the address of its source: every node of Ray must reach it.

    Raises:
        fletchlog.errors.InvalidArgumentError: The source is an open `Broker` or `Cluster`.
        fletchlog.errors.KafkaError: As for `fletchlog.scan`.
        ImportError: Ray is missing.
    """
    try:
        import ray.data
    except ImportError as error:
        raise ImportError("ray is needed for this and is not installed; pip install 'ray[data]'", name="ray") from error
    from fletchlog.scans._ray import TopicDatasource

    return ray.data.read_datasource(TopicDatasource(plan))


def to_daft(plan: TopicScan) -> Any:
    """A plan as a `daft.DataFrame`.

    A task reads a partition, or a range of one, to the end that it has when Daft plans. Columns, limits, and filters without functions reach the scan.

    Args:
        plan: Of `fletchlog.scans.plan`, with the path or the address of its source: every node of Daft must reach it.

    Raises:
        ImportError: Daft is missing.
    """
    try:
        import daft  # noqa: F401
    except ImportError as error:
        raise ImportError("daft is needed for this and is not installed; pip install daft", name="daft") from error
    from fletchlog.scans._daft import TopicDataSource

    return TopicDataSource(plan).read()
