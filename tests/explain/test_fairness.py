"""The numbers of fairness, against hand-made runs and a slow model."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fletchlog.explain._fairness import fairness, jain
from fletchlog.types import Run


def polls_of(text, size=10):
    """`A B AB` = three polls; each letter is a run of `size` records of its partition."""
    next_offset = {}
    polls = []
    for poll in text.split():
        runs = []
        for letter in poll:
            first = next_offset.get(letter, 0)
            next_offset[letter] = first + size
            runs.append(Run(letter, 0, first, first + size - 1, size))
        polls.append(runs)
    return polls


def test_a_strict_turn_is_fair():
    found = fairness(polls_of("A B C A B C A B C"))
    assert (found.jain, found.runs, found.longest_run, found.worst_wait_polls, found.worst_wait_records) == (1.0, 9, 10, 2, 20)


def test_one_partition_after_the_other_is_not():
    found = fairness(polls_of("A A A B B B C C C"))
    # round 1: A of three, round 2: B of the two that are left, round 3: C alone has no share to compare
    assert found.jain == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert (found.runs, found.typical_run, found.longest_run) == (3, 30, 30)
    assert [(p.worst_wait_polls, p.worst_wait_records) for p in found.partitions] == [(0, 0), (3, 30), (6, 60)]


def test_what_is_left_at_the_end_still_waits():
    ends = {("A", 0): (0, 20), ("B", 0): (0, 50), ("C", 0): (0, 0)}
    found = fairness(polls_of("A A"), ends)
    assert [(p.topic, p.worst_wait_polls, p.worst_wait_records) for p in found.partitions] == [("A", 0, 0), ("B", 2, 20)]
    assert found.jain == pytest.approx(0.5)


def test_a_run_goes_on_over_polls():
    found = fairness(polls_of("AB BA A"))
    assert [(p.topic, p.runs, p.longest_run) for p in found.partitions] == [("A", 2, 20), ("B", 1, 20)]


def test_no_poll_has_no_index():
    assert fairness([]).jain is None


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_the_index_lies_between_one_nth_and_one(shares):
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


@given(st.lists(st.text("ABCD", max_size=4), max_size=30))
def test_runs_and_waits_are_those_of_a_reader_who_counts(words):
    polls = polls_of(" ".join(words), size=3)
    found = fairness(polls)
    letters = "".join(words)
    polled = " ".join(words).split()
    runs = [(letter, len(list(same)) * 3) for letter, same in groupby(letters)]
    assert found.records == 3 * len(letters)
    assert found.runs == len(runs)
    for p in found.partitions:
        own = [length for letter, length in runs if letter == p.topic]
        assert (p.runs, p.shortest_run, p.longest_run) == (len(own), min(own), max(own))
        gaps, records, wait, between = [0], [0], 0, 0
        for word in polled:
            if p.topic in word:
                gaps.append(wait)
                wait = 0
            else:
                wait += 1
        for letter in letters:
            if letter == p.topic:
                records.append(between)
                between = 0
            else:
                between += 3
        assert p.worst_wait_polls == max(gaps)
        assert p.worst_wait_records == max(records)
