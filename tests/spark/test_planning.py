"""How offsets become tasks and micro-batches: Spark's own rules, on numbers."""

from hypothesis import given
from hypothesis import strategies as st

from fletchlog.spark.offsets import from_json, to_json
from fletchlog.spark.range_calculator import OffsetRange, pack, split
from fletchlog.spark.rate_limit import Delay, proportional


def ranges(*sizes):
    return [OffsetRange("t", i, 0, size) for i, size in enumerate(sizes)]


def shape(parts):
    return [(part.partition, part.start, part.end) for part in parts]


def test_one_task_per_partition_with_records():
    assert shape(split(ranges(10, 0, 5), None, None)) == [(0, 0, 10), (2, 0, 5)]
    assert shape(split([OffsetRange("t", 0, 9, 4)], None, None)) == []


def test_min_partitions_cuts_large_ranges_and_keeps_small_ones_whole():
    assert shape(split(ranges(1, 100), 4, None)) == [(0, 0, 1), (1, 0, 33), (1, 33, 66), (1, 66, 100)]
    assert len(split(ranges(100), 8, None)) == 8
    assert shape(split(ranges(3, 3), 2, None)) == [(0, 0, 3), (1, 0, 3)]
    # halves go up, as in Java: 2.5 of 5 pieces each become 3
    assert len(split(ranges(50, 50), 5, None)) == 6


def test_more_tasks_than_offsets_are_not_made():
    assert shape(split(ranges(2), 5, None)) == [(0, 0, 1), (0, 1, 2)]


def test_max_records_per_partition_bounds_every_task():
    assert shape(split(ranges(10), None, 4)) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]
    assert len(split(ranges(10), 8, 4)) >= 6


@given(sizes=st.lists(st.integers(1, 10_000), max_size=40), most=st.integers(1, 12))
def test_packed_tasks_keep_every_range_in_order_and_are_about_equal(sizes, most):
    tasks = pack(ranges(*sizes), most)
    assert [item for task in tasks for item in task] == ranges(*sizes)
    assert len(tasks) <= most
    share = sum(size + 1 for size in sizes) / most
    assert all(len(task) == 1 or sum(item.size + 1 for item in task[:-1]) <= share + 1 for task in tasks)


def test_without_a_limit_a_range_is_a_task():
    assert pack(ranges(1, 2), None) == pack(ranges(1, 2), 2) == [(item,) for item in ranges(1, 2)]


@given(
    sizes=st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
    least=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 3_000),
)
def test_tasks_cover_every_offset_once_and_in_order(sizes, least, most):
    parts = split(ranges(*sizes), least, most)
    for number, size in enumerate(sizes):
        mine = [part for part in parts if part.partition == number]
        assert [part.start for part in mine[1:]] == [part.end for part in mine[:-1]]
        assert (mine[0].start, mine[-1].end) == (0, size) if size else not mine
    assert all(0 < part.size <= (most or part.size) for part in parts)


def test_the_limit_is_shared_by_backlog_rounded_down_but_never_to_nothing():
    start = {("t", 0): 0, ("t", 1): 10, ("t", 2): 5}
    latest = {("t", 0): 1000, ("t", 1): 11, ("t", 2): 5}
    assert proportional(100, start, latest) == {("t", 0): 99, ("t", 1): 11, ("t", 2): 5}
    assert proportional(2000, start, latest) == latest
    assert proportional(10, {}, latest) == latest


@given(
    backlog=st.dictionaries(st.integers(0, 20), st.integers(0, 10_000), min_size=1),
    limit=st.integers(1, 5_000),
)
def test_every_backlog_is_worked_off_in_the_end(backlog, limit):
    latest = {("t", p): n for p, n in backlog.items()}
    now = dict.fromkeys(latest, 0)
    for _ in range(sum(backlog.values()) + 1):
        if now == latest:
            break
        following = proportional(limit, now, latest)
        waiting = sum(1 for tp in latest if now[tp] < latest[tp])
        assert sum(following.values()) - sum(now.values()) <= limit + waiting
        assert all(now[tp] < following[tp] <= latest[tp] for tp in latest if now[tp] < latest[tp])
        now = following
    assert now == latest


def test_a_batch_waits_for_enough_offsets_or_for_the_longest_delay():
    now = [0.0]
    delay = Delay(10, 1000, lambda: now[0])
    start = {("t", 0): 0}
    assert not delay.holds_back(start, {("t", 0): 1})  # the first batch never waits
    assert delay.holds_back(start, {("t", 0): 9})
    assert not delay.holds_back(start, {("t", 0): 10})
    now[0] = 999
    assert delay.holds_back(start, {("t", 0): 9})
    now[0] = 1000
    assert not delay.holds_back(start, {("t", 0): 9})
    assert delay.holds_back(start, {("t", 0): 9})


def test_offsets_are_written_in_the_order_of_sparks_kafka_source():
    import json

    offsets = {("b", 0): 1, ("a", 10): 2, ("a", 9): 3}
    assert json.dumps(to_json(offsets), separators=(",", ":")) == '{"a":{"9":3,"10":2},"b":{"0":1}}'
    assert from_json(to_json(offsets)) == offsets
