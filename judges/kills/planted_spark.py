"""What the suites that kill Spark's processes must not pass over. They take minutes: a kill hits the moment of a defect by chance.

`make kills` runs it; pytest finds it by its path only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from judges.kills.test_kills import SECONDS, finds_a_planted_disk


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["spark_queries", "spark_tasks"])
def test_a_disk_that_does_not_keep_what_it_says_is_found(name: str, tmp_path: Path) -> None:
    finds_a_planted_disk(name, 100, 4 * SECONDS, tmp_path)
