"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import fletchlog as fl
from fletchlog import serde

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.parametrize("module", [fl, fl.assign, serde])
def test_examples_of_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_readmes_tour_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    with fl.Broker.in_memory() as broker:
        namespace = {"fl": fl, "broker": broker}
        for block in blocks:
            if "spark" in block:
                continue  # tests/spark runs those
            exec(compile(block, str(README), "exec"), namespace)
            namespace["broker"] = broker
