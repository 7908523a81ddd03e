"""What the suites of kills that take minutes for it must not pass over: a kill hits the moment of a defect by chance.

`make kills` runs it; pytest finds it by its path only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from judges.kills.test_kills import SECONDS, finds_a_planted_disk


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "number"), [("spark_queries", 100), ("spark_tasks", 100), ("power_loss", 10)])
def test_a_disk_that_does_not_keep_what_it_says_is_found(name: str, number: int, tmp_path: Path) -> None:
    finds_a_planted_disk(name, number, 4 * SECONDS, tmp_path)
