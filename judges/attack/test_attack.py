"""A slice of `make attack`: few connections, a second each, and a limit of time that a busy machine holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def attacks(**numbers):
    """Runs the suite as `make` does."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
    environment = {**os.environ, "PYTHONPATH": path, **{key: str(value) for key, value in numbers.items()}}
    return subprocess.run([sys.executable, "-m", "judges.attack.listener"], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_attack_on_a_listener_costs_the_other_clients_nothing():
    done = attacks(CONNECTIONS=1000, SECONDS=1, P99_MS=500)
    assert re.fullmatch(r"attack: 10 attacks, 0 violations", done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.slow
def test_a_limit_that_cannot_be_held_is_a_violation():
    done = attacks(CONNECTIONS=20, SECONDS=1, P99_MS=0)
    assert "attack: 10 attacks, 10 violations" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
