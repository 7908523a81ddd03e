"""The last figures of every ratio: `make bench` compares with them, says what got worse, and writes its own (benches/history.json)."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).resolve().parents[1] / "history.json"
# what is within this of the last figure is noise
TOLERANCE = 0.10


@dataclass(frozen=True)
class Ratio:
    """One figure of a run. What is best at 1 (`flat`) gets worse in both directions."""

    name: str
    value: float
    better: str = "higher"  # or "lower", "flat"


def loss(ratio: Ratio, last: float) -> float:
    """By what part of the last figure a ratio is worse, negative if it is better."""
    if ratio.better == "higher":
        return 1 - ratio.value / last
    if ratio.better == "lower":
        return ratio.value / last - 1
    return max(ratio.value, 1 / ratio.value) / max(last, 1 / last) - 1


def regressions(ratios: list[Ratio], last: dict[str, dict[str, object]]) -> list[str]:
    """A line for each ratio that is more than a tenth worse than its last figure. A ratio without one is new."""
    lines = []
    for ratio in ratios:
        entry = last.get(ratio.name)
        if entry is None:
            continue
        before = float(str(entry["ratio"]))
        if loss(ratio, before) > TOLERANCE:
            lines.append(f"{ratio.name}: {ratio.value:.3f}, {loss(ratio, before):.0%} worse than {before:.3f} of {entry['date']} ({entry['commit']})")
    return lines


def read(path: Path = PATH) -> dict[str, dict[str, object]]:
    """The last figures by name; none without a file."""
    if not path.exists():
        return {}
    figures: dict[str, dict[str, object]] = json.loads(path.read_text())["ratios"]
    return figures


def write(ratios: list[Ratio], date: str, commit: str, path: Path = PATH) -> None:
    """Replaces the figures of these ratios; others stay as they are."""
    now = {ratio.name: {"ratio": round(ratio.value, 3), "date": date, "commit": commit} for ratio in ratios}
    text = json.dumps({"ratios": dict(sorted((read(path) | now).items()))}, indent=1) + "\n"
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def commit() -> str:
    """What was measured: the commit, with a + if the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=PATH.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def compare_and_write(ratios: list[Ratio], path: Path = PATH) -> None:
    """The end of a run: says what got worse, then takes its figures as the last ones."""
    worse = regressions(ratios, read(path))
    print(f"  against the last figures ({path.name}): {len(worse) or 'nothing'} more than {TOLERANCE:.0%} worse")
    for line in worse:
        print(f"  WORSE  {line}")
    write(ratios, dt.datetime.now(dt.UTC).date().isoformat(), commit(), path)
