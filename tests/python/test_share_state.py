"""`Broker.share_state`: what a share group is not done with, as a table."""

from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import errors


def test_a_group_without_records_in_flight_has_an_empty_table(tmp_path: Path) -> None:
    with fl.Broker(tmp_path, create=True) as broker:
        broker.create_topic("t")
        table = broker.share_state("g", "t").to_pyarrow()
    expected = pa.schema(
        [
            ("partition", pa.int32()),
            ("first_offset", pa.int64()),
            ("last_offset", pa.int64()),
            ("state", pa.string()),
            ("member_id", pa.string()),
            ("delivery_count", pa.int16()),
            ("lock_left_ms", pa.int64()),
        ]
    )
    assert table.schema.names == expected.names
    assert [field.type for field in table.schema] == [field.type for field in expected]
    assert table.num_rows == 0


def test_an_unknown_topic_is_an_error(tmp_path: Path) -> None:
    with fl.Broker(tmp_path, create=True) as broker, pytest.raises(errors.UnknownTopicOrPartitionError):
        broker.share_state("g", "nowhere")
