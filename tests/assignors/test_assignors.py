"""Who reads what, compared with what Java's assignors answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl


def cases(golden: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (golden / name).read_text().splitlines()]


@pytest.mark.parametrize(("function", "column"), [(fl.assign.range, "range"), (fl.assign.round_robin, "roundrobin")])
def test_range_and_round_robin_equal_javas(golden: Path, function: Any, column: str) -> None:
    recorded = cases(golden, "assignors.jsonl")
    assert len(recorded) >= 200
    for case in recorded:
        got = function(case["topics"], case["members"], group_instance_ids=case["static"])
        assert got == case[column], case


def test_sticky_is_valid_balanced_and_sticky(golden: Path) -> None:
    for case in cases(golden, "assignors.jsonl"):
        topics, members = case["topics"], case["members"]
        first = fl.assign.sticky(topics, members, group_instance_ids=case["static"])
        check_valid(topics, members, first)
        if len({tuple(sorted(set(names))) for names in members.values()}) == 1:
            loads = [sum(map(len, topics_of.values())) for topics_of in first.values()]
            assert max(loads) - min(loads) <= 1, case
        again = fl.assign.sticky(topics, members, owned=first, generations=dict.fromkeys(members, 1))
        assert again == first, case


def check_valid(topics: dict[str, int], members: dict[str, list[str]], assignment: dict[str, dict[str, list[int]]]) -> None:
    """Every partition that somebody subscribes to has exactly one owner, who subscribes to it."""
    owners: dict[tuple[str, int], str] = {}
    assert set(assignment) == set(members)
    for member, owned in assignment.items():
        for topic, partitions in owned.items():
            assert topic in members[member]
            for partition in partitions:
                assert owners.setdefault((topic, partition), member) == member
    subscribed = {topic for names in members.values() for topic in names}
    assert set(owners) == {(t, p) for t, n in topics.items() if t in subscribed for p in range(n)}


def test_cooperative_sticky_hands_over_in_two_rounds() -> None:
    topics, members = {"t": 3}, {"c1": ["t"], "c2": ["t"]}
    first = fl.assign.cooperative_sticky(topics, members, owned={"c1": {"t": [0, 1, 2]}}, generations={"c1": 1})
    assert first == {"c1": {"t": [0, 1]}, "c2": {}}
    second = fl.assign.cooperative_sticky(topics, members, owned=first, generations={"c1": 2, "c2": 2})
    assert second == {"c1": {"t": [0, 1]}, "c2": {"t": [2]}}


def test_legacy_assignors_equal_real_0_8_groups(golden: Path) -> None:
    for case in cases(golden, "legacy-groups.jsonl"):
        function = fl.assign.legacy_range if case["strategy"] == "range" else fl.assign.legacy_round_robin
        after = {m: s for m, s in case["members"].items() if m != case["left"]}
        for members, owners in ((case["members"], case["owners"]), (after, case["ownersAfter"])):
            if owners is None:  # nobody was left
                continue
            got = function(case["topics"], members)
            assert owners_of(got) == {(t, int(p)): thread for t, parts in owners.items() for p, thread in parts.items()}, case
            threads = {f"{m}-{i}" for m, streams in members.items() for n in streams.values() for i in range(n)}
            assert set(got) == threads


def owners_of(threads: dict[str, dict[str, list[int]]]) -> dict[tuple[str, int], str]:
    return {(t, p): thread for thread, topics in threads.items() for t, parts in topics.items() for p in parts}


def test_seed_002_one_machine_gets_all_six_partitions() -> None:
    group = {machine: {"my-topic": 6} for machine in ("g_a", "g_b", "g_c")}
    threads = fl.assign.legacy_range({"my-topic": 6}, group)
    assert {t: p["my-topic"] for t, p in threads.items()} == {
        **{f"g_a-{i}": [i] for i in range(6)},
        **{f"g_{machine}-{i}": [] for machine in "bc" for i in range(6)},
    }


def test_threads_sort_as_strings() -> None:
    threads = fl.assign.legacy_range({"t": 12}, {"g_a": {"t": 11}})
    assert threads["g_a-0"] == {"t": [0, 1]}
    assert threads["g_a-10"] == {"t": [3]}
    assert threads["g_a-2"] == {"t": [4]}


def test_bad_arguments_are_named() -> None:
    with pytest.raises(fl.errors.InvalidArgumentError, match="at least 1"):
        fl.assign.legacy_range({"t": 1}, {"g_a": {"t": 0}})
    with pytest.raises(fl.errors.InvalidArgumentError, match="-1 partitions"):
        fl.assign.range({"t": -1}, {"a": ["t"]})
    with pytest.raises(fl.errors.InvalidArgumentError, match="same number of streams"):
        fl.assign.legacy_round_robin({"t": 1, "u": 1}, {"g_a": {"t": 1, "u": 2}})
