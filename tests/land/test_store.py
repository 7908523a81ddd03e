"""A source and a Delta table on object stores, served by moto."""

import polars as pl
import pytest

import fletchlog as fl
from fletchlog.errors import TableConflictError
from tests.support.landed import expected, rows_of
from tests.support.s3_server import running


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with running(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_a_delta_table_on_a_store_has_one_lander_of_a_topic(s3, broker, send, tmp_path):
    table = f"s3://{s3.new_bucket()}/lake/orders"
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true"}
    send(5)
    assert fl.land(broker, "t", table, table_options=options).rows == 5
    send(4)
    first = []

    def other(_topic, _rows):
        if not first:
            first.append(fl.land(broker, "t", table, table_options=options))

    with pytest.raises(TableConflictError, match="another lander has committed"):
        fl.land(broker, "t", table, table_options=options, on_progress=other)
    assert first[0].rows == 4
    found = pl.scan_delta(table, storage_options=options).collect().to_arrow()
    assert rows_of(found) == expected(broker)
    assert fl.land.offsets(table, table_options=options) == {("t", 0): 9, ("t", 1): 0}


def test_an_exported_directory_on_a_store_is_a_source(s3, place, tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"0")
    bucket = s3.new_bucket()
    fl.transfer.export(tmp_path / "data", f"s3://{bucket}/log", storage_options=s3.options)
    assert place.land(f"s3://{bucket}/log", storage_options=s3.options).rows == 1
    assert place.land(f"s3://{bucket}/log", storage_options=s3.options).rows == 0
