"""The judge of the kills of tasks that commit by themselves finds what it is there to find."""

from __future__ import annotations

import pytest

from judges.kills.spark_tasks import complaint

pytestmark = pytest.mark.spark  # the suite imports PySpark

# A partition after a batch that Spark noted as done, and after the next one.
DONE, BEGUN = ["0", "3"], ["0", "3", "6", "9"]


@pytest.mark.parametrize(("found", "whole"), [(DONE, True), (BEGUN, True), (DONE, False), (BEGUN, False), (["3", "0", "9"], False)])
def test_the_next_batch_may_be_there_by_tasks(found: list[str], whole: bool) -> None:
    assert complaint(found, DONE, BEGUN, whole=whole) is None


@pytest.mark.parametrize(
    ("found", "whole", "wrong"),
    [
        (["0", "3", "6"], True, "3 of 4 records, from place 3 on"),
        (["3", "0"], True, "2 of 4 records, from place 0 on"),
        (["0"], True, "1 of 4 records, from place 1 on"),
        ([*BEGUN, "9"], True, "5 of 4 records, from place 4 on"),
        (["0", "9"], False, "0 repeated, 1 lost, 0 strange"),
        (["0", "3", "3"], False, "1 repeated, 0 lost, 0 strange"),
        ([*BEGUN, "12"], False, "0 repeated, 0 lost, 1 strange"),
    ],
)
def test_what_is_lost_repeated_moved_torn_or_not_begun_is_named(found: list[str], whole: bool, wrong: str) -> None:
    assert wrong in str(complaint(found, DONE, BEGUN, whole=whole))
