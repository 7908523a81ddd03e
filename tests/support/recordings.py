"""How recorded requests and scripts are sent to a broker: with the runners in `tests/golden`."""

import re
import subprocess
import sys
from pathlib import Path

# those of the broker that was recorded
SETTINGS = {
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "10",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "300",
    "group.share.assignment.interval.ms": None,
}
# more than 4.3.1's messages
OF_4_4 = ["--schemas", "schemas-4.4.json"]


def replay(golden, folder, script, bootstrap, recording=None, options=()):
    """The lines of a replay, the first of which counts what was compared: every line of the recording."""
    recording = recording or golden / f"{folder}.jsonl"
    command = [sys.executable, script, bootstrap, recording, "--show", "5000", *options]
    done = subprocess.run(command, cwd=golden / folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout, done.stderr
    lines = done.stdout.splitlines()
    compared = sum(map(int, re.findall(r"(\d+) (?:equal|different|closed)", lines[0].partition("(")[0])))
    recordings = [file for file in [recording, *options] if isinstance(file, Path)]
    assert compared == sum(len(file.read_text().splitlines()) for file in recordings), lines[0]
    return lines


def different(golden, folder, bootstrap, recording=None, options=()):
    """The ids of the scripts that run otherwise, and what was printed."""
    lines = replay(golden, folder, "run_scripts.py", bootstrap, recording, options)
    assert "equal" in lines[0], lines
    return sorted(line.split()[0] for line in lines if re.match(r"  [a-z\d-]+-\d+ ", line)), "\n".join(lines)
