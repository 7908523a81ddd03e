"""The picture of the demo."""

import pytest

import fletchlog as fl
from fletchlog.explain import explain
from fletchlog.plot import PollOrder, run_lengths


def test_stretches_join_runs_of_one_partition_across_polls():
    run = lambda partition, count: fl.types.Run("t", partition, 0, count - 1, count)  # noqa: E731
    order = PollOrder("x", [[run(0, 3)], [run(0, 1), run(1, 2)], [run(1, 3)], [run(0, 3)]])
    stretches = order.stretches()
    assert [(s.partition, s.records, s.first_poll, s.last_poll) for s in stretches] == [(0, 4, 0, 1), (1, 5, 1, 2), (0, 3, 3, 3)]
    assert [(round(s.start, 3), round(s.end, 3)) for s in stretches] == [(0, 1.333), (1.333, 3), (3, 4)]
    assert run_lengths(stretches) == {("t", 0): [4, 3], ("t", 1): [5]}


def test_the_same_polls_give_the_same_picture(small_broker, tmp_path):
    from fletchlog.plot import poll_order

    told = explain(small_broker, ["orders"], {"max.poll.records": 7}, polls=10)
    for name in ("a.png", "b.png"):
        poll_order(tmp_path / name, [PollOrder("x", told.polls)], title="t")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ValueError, match="nothing to draw"):
        poll_order(tmp_path / "c.png", [PollOrder("x", [])], title="t")
