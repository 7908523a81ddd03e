"""Part 28: a Spark stream whose tasks write into a real broker by themselves (`transactionPerTask`), while its workers, executors and drivers are killed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from judges.kills.spark_tasks import TaskCampaign

from . import kafka
from .conftest import CASES, SEED
from .kraft import Kraft, format_directory

PART = "28 killed tasks of Spark"
KILLS = CASES // 10


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", kafka.SERVERS)
def test_rows_of_tasks_that_commit_by_themselves_are_there_once(
    release: str, scratch: Path, capsys: pytest.CaptureFixture[str], count: Callable[..., None]
) -> None:
    with Kraft(release, format_directory(scratch / "data"), scratch) as broker:
        campaign = TaskCampaign(broker.address, KILLS, math.inf, SEED, scratch)
        done = campaign.run()
    assert campaign.violations == 0, f"{done}\n{capsys.readouterr().out}"
    assert campaign.killed.total() >= KILLS
    print(done)  # noqa: T201 - with -s or -rP
    count(PART, drivers=campaign.drivers, rows=campaign.rows, **{f"kills_of_a_{kind}": number for kind, number in campaign.killed.items()})
