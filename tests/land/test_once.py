"""Each committed record is a row once, whatever the format, and however often `land` is called."""

import contextlib
from datetime import date
from threading import Event, Thread

import pytest

import fletchlog as fl
from fletchlog.errors import IllegalStateError, InvalidArgumentError, OffsetOutOfRangeError, TableConflictError
from fletchlog.landing.positions import Wanted
from fletchlog.landing.tables import table_at
from tests.support.landed import Place, expected


def test_a_second_call_lands_what_is_new_and_a_third_one_nothing(broker, place, send):
    send(5)
    send(3, partition=1)
    first = place.land(broker)
    assert (first.rows, first.commits, first.files, first.format) == (8, 1, 1, place.format)
    send(4, partition=1)
    second = place.land(broker)
    assert (second.rows, second.commits) == (4, 1)
    third = place.land(broker)
    assert (third.rows, third.commits, third.files) == (0, 0, 0)
    assert place.rows() == expected(broker)
    assert place.offsets() == {("t", 0): 5, ("t", 1): 7} == {tuple(tp): offset for tp, offset in third.offsets.items()}


def test_every_source_is_landed(place, tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"0")
    assert place.land(tmp_path / "data").rows == 1
    with fl.Broker(tmp_path / "data") as broker, broker.listen() as listener:
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"1")
        assert place.land(f"kafka://{listener.bootstrap}", config={"client.id": "lander"}).rows == 1
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"2")
        with fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
            assert place.land(cluster).rows == 1
        assert place.rows() == expected(broker)


def test_transactions_markers_and_compacted_offsets_leave_no_row_out_and_none_twice(broker, place):
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for n in range(3):
                producer.send("t", value=b"%d" % n, partition=0)
            producer.flush()
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
            place.land(broker)
        producer.begin_transaction()
        producer.send("t", value=b"open", partition=0)
        producer.flush()
        place.land(broker)
        assert len(place.rows()) == 6
        assert place.rows() == expected(broker)
        producer.commit_transaction()
    assert place.land(broker).rows == 1
    assert place.rows() == expected(broker)
    # the last offset is that of a marker
    assert place.offsets()["t", 0] == broker.end_offsets([("t", 0)])["t", 0]


def test_read_uncommitted_lands_aborted_records_too(broker, place):
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    assert place.land(broker, isolation_level="read_uncommitted").rows == 1


def test_offsets_without_rows_are_remembered_so_that_their_deletion_is_no_loss(broker, place):
    with fl.Producer(broker, {"transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", value=b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    assert place.land(broker).rows == 0
    broker.delete_records("t", 0, 2)
    assert place.land(broker).rows == 0
    assert place.offsets() == {("t", 0): 2, ("t", 1): 0}


@pytest.mark.parametrize("by", ["day", "hour"])
def test_rows_are_partitioned_by_their_time(broker, place, send, by):
    hour, day = 3_600_000, 86_400_000
    for n in (0, 1, 25, 0, 49):
        send([b"%d" % n], timestamp_ms=20_000 * day + n * hour)
    assert place.land(broker, partition_by=by).rows == 5
    found = place.read()
    first = date(2024, 10, 4)
    assert sorted(found["day"].to_pylist()) == sorted(date.fromordinal(first.toordinal() + n) for n in (0, 0, 1, 0, 2))
    if by == "hour":
        assert sorted(found["hour"].to_pylist()) == [0, 0, 1, 1, 1]
    assert place.rows() == expected(broker)
    # the next call need not say it
    send(1, timestamp_ms=20_000 * day)
    place.land(broker)
    assert place.rows() == expected(broker)
    with pytest.raises(InvalidArgumentError, match=f"partitioned by {by}, and partition_by is"):
        place.land(broker, partition_by="hour" if by == "day" else "day")


def test_several_topics_go_into_one_table_if_they_come_together(broker, place, send):
    broker.create_topic("u")
    broker.create_topic("w")
    send(2)
    send(3, topic="u")
    place.land(broker, ["t", "u"])
    send(1, topic="w")
    with pytest.raises(IllegalStateError, match=r"has the topics t, u and not w.*append=True"):
        place.land(broker, "w")
    assert place.land(broker, "w", append=True).rows == 1
    assert place.land(broker, "t").rows == 0
    assert place.rows() == expected(broker, "t", "u", "w")
    assert place.offsets() == {("t", 0): 2, ("t", 1): 0, ("u", 0): 3, ("w", 0): 1}


def test_a_topic_that_was_made_again_is_refused(broker, place, send):
    send(3)
    place.land(broker)
    broker.delete_topic("t")
    broker.create_topic("t", partitions=2)
    send(5)
    with pytest.raises(IllegalStateError, match="deleted and made again, or this is another source"):
        place.land(broker)
    assert len(place.rows()) == 3


def test_records_that_were_deleted_before_they_were_landed_are_named_or_skipped(broker, place, send):
    send(4)
    place.land(broker)
    send(6)
    broker.delete_records("t", 0, 7)
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offsets 4 to 6 were deleted.*on_lost='skip'"):
        place.land(broker)
    landed = place.land(broker, on_lost="skip")
    assert (landed.rows, landed.skipped) == (3, {("t", 0): (4, 7)})
    assert [row[2] for row in place.rows()] == [0, 1, 2, 3, 7, 8, 9]


def test_a_source_that_ends_before_the_table_is_refused(tmp_path, place):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"0")
    fl.transfer.export(tmp_path / "data", tmp_path / "older")
    with fl.Broker(tmp_path / "data") as broker, fl.Producer(broker) as producer:
        producer.send("t", value=b"1")
    place.land(tmp_path / "data")
    with pytest.raises(IllegalStateError, match=r"ends at offset 1, and the table .* has it up to 2"):
        place.land(tmp_path / "older")


def test_a_table_with_rows_of_another_writer_is_refused_unless_it_is_appended_to(broker, place, send):
    send(3)
    other = Place(place.format, place.path.parent, "made")
    other.land(broker)
    if place.format == "parquet":
        place.path.mkdir()
        (next(other.path.glob("*.parquet"))).rename(place.path / "x.parquet")
    elif place.format == "delta":
        import deltalake

        deltalake.write_deltalake(place.table, other.read())
    else:
        made = other.iceberg()
        made.catalog.create_table(place.table, schema=made.schema()).append(made.scan().to_arrow())
    with pytest.raises(IllegalStateError, match="has rows, and no offsets of topic t"):
        place.land(broker)
    with pytest.raises((InvalidArgumentError, fl.KafkaError), match="not written by fletchlog land"):
        place.offsets()
    send(2)
    assert place.land(broker, start_offsets={("t", 0): 3, ("t", 1): 0}).rows == 2
    assert place.rows() == expected(broker)


def test_a_second_lander_of_the_same_topic_is_refused_and_writes_nothing(broker, place, send):
    """The second one reads the table, and commits after the first one has."""
    send(5)
    place.land(broker)
    send(5)
    raised = []

    def first(_topic, _rows):
        if not raised:
            raised.append(True)
            if place.format == "parquet":
                with pytest.raises(TableConflictError, match="another lander at this moment"):
                    place.land(broker)
                raise TableConflictError("another lander")
            assert place.land(broker).rows == 5

    with pytest.raises(TableConflictError, match="another lander"):
        place.land(broker, on_progress=first)
    place.land(broker)
    assert place.rows() == expected(broker)


def test_a_lander_whose_compaction_has_taken_up_another_landers_commit_is_refused(broker, send, tmp_path):
    place = Place("delta", tmp_path)
    for _ in range(2):
        send(3)
        place.land(broker)
    first = table_at(place.table, "delta", None, None)
    positions = first.open({"t": Wanted([broker.describe_topic("t").topic_id], [0, 1])})
    send(3)
    assert place.land(broker).rows == 3
    assert first.compact(1 << 20) > 0
    positions["t"].offsets[0] = 9
    rows = place.read().slice(0, 0)
    with pytest.raises(TableConflictError, match="another lander has committed t-0"):
        first.append(rows, rows.schema, None, positions)


def test_a_topic_that_is_made_again_while_it_is_landed_is_refused(broker, place, send):
    send(3)
    place.land(broker)
    send(3)

    def again(_topic, _rows):
        broker.delete_topic("t")
        broker.create_topic("t", partitions=2)

    with pytest.raises(IllegalStateError, match="deleted and made again while it was landed"):
        place.land(broker, on_progress=again)
    assert len(place.rows()) == 3


def test_what_a_killed_lander_has_staged_is_removed(broker, parquet, send):
    send(1)
    parquet.land(broker)
    left = parquet.path / "_fletchlog" / "staged" / "00000002-0000"
    left.write_bytes(b"torn")
    parquet.land(broker)
    assert not left.exists()


def test_two_landers_that_make_the_table_do_not_land_twice(broker, place, send):
    if place.format == "parquet":
        pytest.skip("its lock is taken before it is read")
    send(5)
    with pytest.raises(TableConflictError, match="another lander has committed"):
        place.land(broker, on_progress=lambda *_: place.land(broker))
    assert place.rows() == expected(broker)


def test_commits_of_other_writers_are_no_conflict(broker, place, send):
    if place.format == "parquet":
        pytest.skip("a directory has one writer")
    send(5)
    place.land(broker)
    send(5)

    def other(_topic, _rows):
        if place.format == "delta":
            import deltalake

            deltalake.DeltaTable(place.table).alter.set_table_description("mine")
            deltalake.DeltaTable(place.table).delete("offset = 2")
        else:
            place.iceberg().delete("offset = 2")

    assert place.land(broker, on_progress=other).rows == 5
    assert [row[2] for row in place.rows()] == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert place.land(broker).rows == 0


def test_two_landers_of_two_topics_share_a_table_of_delta(broker, send, tmp_path):
    place = Place("delta", tmp_path)
    broker.create_topic("u")
    send(3)
    send(3, topic="u")
    place.land(broker, ["t", "u"])
    send(2)
    send(2, topic="u")
    assert place.land(broker, "t", on_progress=lambda *_: place.land(broker, "u")).rows == 2
    assert place.rows() == expected(broker, "t", "u")


def test_rows_are_committed_as_often_as_the_buffer_is_full(broker, place, send):
    send([b"x" * 1000] * 6000)
    landed = place.land(broker, batch_bytes=500_000)
    assert landed.rows == 6000
    assert landed.commits > 2
    assert place.rows() == expected(broker)


def test_small_files_become_large_ones_and_nothing_else_changes(broker, place, send):
    if place.format == "iceberg":
        with pytest.raises(InvalidArgumentError, match="pyiceberg rewrites no files"):
            place.land(broker, compact=True)
        return
    for n in range(6):
        send(3, partition=n % 2)
        place.land(broker)
    landed = place.land(broker, compact=True)
    assert landed.compacted == 6
    assert place.rows() == expected(broker)
    if place.format == "parquet":
        assert len(list(place.path.glob("*.parquet"))) == 1
    send(3)
    assert place.land(broker, compact=True).rows == 3
    assert place.rows() == expected(broker)


def test_following_lands_what_arrives_until_it_is_stopped(broker, place, send):
    stop, landed = Event(), []
    send(2)
    follower = Thread(target=lambda: landed.append(place.land(broker, follow=True, interval=0.2, stop=stop)))
    follower.start()
    try:
        while len(place.rows()) < 2:
            assert follower.is_alive()
        broker.create_partitions("t", 3)
        send(3, partition=2)
        while len(place.rows()) < 5:
            assert follower.is_alive()
    finally:
        stop.set()
        follower.join(30)
    assert (landed[0].rows, landed[0].stopped) == (5, True)
    assert place.rows() == expected(broker)
    assert place.land(broker).rows == 0


def test_following_commits_offsets_without_rows(broker, place):
    """So that the deletion of aborted records is no loss, whatever happens to the lander."""
    stop = Event()
    follower = Thread(target=lambda: place.land(broker, follow=True, interval=0.2, stop=stop))
    follower.start()
    try:
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", value=b"aborted", partition=0)
            producer.flush()
            producer.abort_transaction()
        while True:
            assert follower.is_alive()
            with contextlib.suppress(fl.KafkaError):
                if place.offsets()["t", 0] == 2:
                    break
    finally:
        stop.set()
        follower.join(30)
    assert place.rows() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "csv"}, "expected one of parquet, delta, iceberg"),
        ({"partition_by": "week"}, "expected 'day', 'hour' or None"),
        ({"value": fl.serde.Json()}, "a type that does not depend on the values"),
        ({"flatten": True}, "give a deserializer"),
        ({"interval": 0}, "interval is 0"),
        ({"on_lost": "no"}, "expected 'raise' or 'skip'"),
        ({"format": "iceberg"}, "found by its catalog"),
        ({"format": "delta", "catalog": {}}, "a catalog is for Iceberg"),
        ({"table_options": {"a": "b"}}, "table_options are for a table on an object store"),
        ({"catalog": {"type": "sql"}, "table": "name"}, "NAMESPACE.NAME"),
        ({"table": "hdfs://host:1/x", "format": "parquet"}, "no Parquet table can be there"),
        ({"table": "kafka://h:1"}, "the table kafka://h:1 is a cluster"),
        ({"topics": []}, "no topic to land"),
        ({"topics": None}, "topics is None; give the name of a topic, or a list of names"),
        ({"topics": ["t", 3]}, "topics are names; got 3"),
        ({"interval": "5"}, "interval is '5'; expected a number above 0"),
        ({"start_offsets": {("x", 0): 1}}, "start_offsets has topic 'x', which is not among the topics to land: t"),
        ({"start_offsets": {("t", 0): -1}}, "an offset is an int from 0"),
        ({"table": "a.b", "catalog": "nowhere"}, "no catalog of pyiceberg's configuration is named nowhere"),
        ({"table": "a.b", "catalog": {"type": "strange"}}, "the properties of the catalog default: 'strange'"),
    ],
)
def test_what_can_never_be_right_is_refused_before_anything_is_made(broker, tmp_path, options, said):
    topics, table = options.pop("topics", "t"), options.pop("table", tmp_path / "x")
    with pytest.raises(InvalidArgumentError, match=said):
        fl.land(broker, topics, table, **options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("table_format", [None, "delta"])
def test_a_brokers_directory_is_no_table(tmp_path, table_format):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidArgumentError, match="is a broker's directory"):
        fl.land(tmp_path / "data", "t", tmp_path / "data", format=table_format)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_table_is_a_directory_of_one_format(broker, send, tmp_path):
    send(3)
    (tmp_path / "file").write_text("x")
    for table_format in (None, "parquet", "delta"):
        with pytest.raises(InvalidArgumentError, match="is a file; a table is a directory"):
            fl.land(broker, "t", tmp_path / "file", format=table_format)
    for table_format, other in (("parquet", "delta"), ("delta", "parquet")):
        place = Place(table_format, tmp_path, table_format)
        place.land(broker)
        with pytest.raises(InvalidArgumentError, match=f"is a table of format '{table_format}', and format is '{other}': leave it out"):
            fl.land(broker, "t", place.path, format=other)
        assert fl.land(broker, "t", place.path).format == table_format


@pytest.mark.parametrize(("partition", "offset", "said"), [(9, 1, "t-9; the topic has the partitions 0 to 1"), (0, 4, "t-0 at offset 4; the source ends at 3")])
def test_a_beginning_that_the_source_does_not_have_is_refused(broker, parquet, send, partition, offset, said):
    send(3)
    with pytest.raises(InvalidArgumentError, match=said):
        parquet.land(broker, start_offsets={("t", partition): offset})
    assert parquet.land(broker, start_offsets={("t", 0): 1}).rows == 2
    assert parquet.land(broker, start_offsets={("t", 0): 4}).rows == 0, "the table continues at its own offset"


def test_a_catalog_that_does_not_answer_is_named(broker):
    with pytest.raises(fl.errors.StorageError, match=r"the catalog default: the catalog does not answer: .*refused"):
        fl.land(broker, "t", "a.b", catalog={"type": "rest", "uri": "http://127.0.0.1:1"})


def test_offsets_of_no_table(place):
    with pytest.raises(fl.errors.DirectoryError, match="there is no such table"):
        place.offsets()
