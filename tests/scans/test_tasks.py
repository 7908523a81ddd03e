"""A plan in parts, and the engines that read parts in other processes: Ray and Daft, where they are installed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings

import fletchlog as fl
from fletchlog import serde
from fletchlog.scans._dataset import TopicScanner, bounded
from fletchlog.scans._split import parts
from tests.scans.conftest import NOW, fill, time
from tests.scans.test_dataset import expressions

VALUE = serde.Json(pa.schema({"amount": pa.int64(), "text": pa.string()}))
f = pc.field


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tasks") / "log"
    with fl.Broker(path, create=True) as broker:
        fill(broker)
    return str(path)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=expressions)
def test_the_parts_have_the_rows_of_the_plan(directory: str, expression) -> None:
    plan = fl.scans.plan(directory, ["a", "b"])
    found = [TopicScanner(pickle.loads(pickle.dumps(part)), ["topic", "partition", "offset"], expression) for part in parts(bounded(plan, expression))]
    rows = [row for scanner in found for row in scanner.to_table().to_pylist()]
    key = tuple
    expected = fl.scans.dataset(directory, ["a", "b"]).to_table(["topic", "partition", "offset"], expression).to_pylist()
    assert sorted(map(key, map(dict.values, rows))) == sorted(map(key, map(dict.values, expected)))


def test_parts_end_where_the_partitions_end_now(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t", partitions=2)
        producer.send_many("t", [b"1", b"2", b"3"], partition=0)
        producer.flush()
        found = parts(fl.scans.plan(str(tmp_path / "log"), "t"))
        producer.send_many("t", [b"4"], partition=0)
        producer.send_many("t", [b"5"], partition=1)
        producer.flush()
        assert sum(batch.num_rows for part in found for batch in part.batches()) == 3


def test_tails_limits_and_committed_records_in_parts(directory: str) -> None:
    for options in ({"tail": 3}, {"isolation_level": "read_committed"}, {"start_time": NOW + 500, "end_offset": 40}, {"partitions": [0, 2]}):
        plan = fl.scans.plan(directory, ["a", "b", "empty"], **options)
        rows = sum(batch.num_rows for batch in plan.batches())
        assert sum(batch.num_rows for part in parts(plan) for batch in part.batches()) == rows > 0, options
    assert len(parts(fl.scans.plan(directory, "a").head(5))) == 1


def test_an_open_broker_has_no_parts(filled: fl.Broker) -> None:
    with pytest.raises(fl.errors.InvalidArgumentError, match="open in this process"):
        parts(fl.scans.plan(filled, "a"))


def test_a_limit_is_taken_before_a_filter(directory: str) -> None:
    first = fl.scans.TopicDataset(fl.scans.plan(directory, "a").head(30))
    assert first.count_rows() == 30
    assert first.to_table(["offset"], f("offset") > 40) == first.to_table().filter(f("offset") > 40).select(["offset"])


def test_a_missing_engine_is_named(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, call in (("ray", fl.scans.to_ray), ("daft", fl.scans.to_daft)):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(ImportError, match=f"{name} is needed"):
            call(fl.scans.plan(directory, "a"))


def test_daft_reads_what_it_needs(directory: str) -> None:
    daft = pytest.importorskip("daft")
    frame = fl.scans.to_daft(fl.scans.plan(directory, ["a", "b"], value=VALUE))
    whole = fl.scans.dataset(directory, ["a", "b"], value=VALUE)
    assert frame.count_rows() == whole.count_rows()
    for asked, expected in (
        ((daft.col("offset") >= 30) & (daft.col("partition") == 1), (f("offset") >= 30) & (f("partition") == 1)),
        (daft.col("timestamp") >= time(NOW + 900), f("timestamp") >= time(NOW + 900)),
        ((daft.col("topic") == "b") | (daft.col("offset") < 25), (f("topic") == "b") | (f("offset") < 25)),
        (daft.col("value")["amount"] > 100, f("value", "amount") > 100),
        (daft.col("offset") < 0, f("offset") < 0),
    ):
        found = frame.where(asked).select("key", "topic", "offset").to_arrow().sort_by([("topic", "ascending"), ("offset", "ascending"), ("key", "ascending")])
        table = whole.to_table(["key", "topic", "offset"], expected)
        assert found.to_pylist() == table.sort_by([("topic", "ascending"), ("offset", "ascending"), ("key", "ascending")]).to_pylist()
        assert frame.where(asked).limit(4).count_rows() == min(4, table.num_rows)
        assert frame.limit(7).where(asked).count_rows() <= 7
    assert frame.limit(4).count_rows() == 4


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # Ray warns of itself
@pytest.mark.timeout(180)
def test_ray_reads_what_it_needs(ray, directory: str) -> None:
    from ray.data.expressions import col

    found = fl.scans.to_ray(fl.scans.plan(directory, ["a", "b"], value=VALUE))
    whole = fl.scans.dataset(directory, ["a", "b"], value=VALUE)
    assert found.count() == whole.count_rows()
    kept = found.filter(expr=(col("offset") >= 30) & (col("partition") == 1)).select_columns(["offset", "key"]).take_all()
    expected = whole.to_table(["offset", "key"], (f("offset") >= 30) & (f("partition") == 1)).to_pylist()
    assert sorted(kept, key=lambda row: tuple(row.values())) == sorted(expected, key=lambda row: tuple(row.values()))
    assert found.filter(expr=col("offset") < 0).count() == 0
    assert found.limit(5).count() == 5
