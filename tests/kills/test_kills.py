"""A slice of `make kills`: kill -9 of a Python process at random system calls loses nothing and repeats nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 500
# On a busy machine fewer have to do.
SECONDS = 60
AT_LEAST = 60


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_was_acknowledged_survives_kill_9_at_any_system_call() -> None:
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), str(KILLS), str(SECONDS), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.fullmatch(r"kills: (\d+), (\d+) violations", done.stdout.strip().splitlines()[-1])
    assert found, done.stdout + done.stderr
    assert int(found[2]) == done.returncode == 0, done.stdout + done.stderr
    assert int(found[1]) >= AT_LEAST, done.stdout + done.stderr
