"""Forty and more sick programs: the first finding names what is wrong with each, and their healthy twins have no finding."""

import importlib
import logging
import re
from pathlib import Path

import pytest

from fletchlog.explain import clients
from fletchlog.explain.session import rules
from pytest_fletchlog.kafka import Kafka
from tests.explain.zoo import ZOO
from tests.support.lateness import Lateness

for part in ("groups", "commits", "fetches", "producers", "transactions", "access", "share"):
    importlib.import_module(f"tests.explain.zoo.{part}")

# a machine is busy if it lets a thread wait for so long
BUSY_S = 0.03
ATTEMPTS = 5
# what the wire cannot show well enough; at most two
EXCEPTIONS: set[str] = set()
PROGRAMS = [pytest.param(program, id=program.name, marks=pytest.mark.slow if program.is_slow else ()) for program in ZOO]


def judged(program, tmp_path, *, sick):
    """The session of a run, explained. Whether a heartbeat or a fetch is late depends on the machine, too: a run that it was late with is repeated."""
    for _ in range(ATTEMPTS):
        with Lateness() as late:
            explained = recorded(program, sick, tmp_path)
        found = [finding.code for finding in explained.findings]
        if late.most_s < BUSY_S or found[:1] == ([program.finding] if sick else []):
            break
    return explained


def recorded(program, sick, tmp_path):
    """The session of one run, explained."""
    path = tmp_path / ("sick.fltrace" if sick else "healthy.fltrace")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with Kafka(nodes=program.nodes, config=program.config, record=path) as kafka:
        program.run(kafka, kafka.bootstrap, sick)
    return clients(path)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_first_finding_names_the_cause(program, tmp_path):
    explained = judged(program, tmp_path, sick=True)
    found = [finding.code for finding in explained.findings]
    assert found, explained.text()
    assert found[0] == program.finding or program.name in EXCEPTIONS, explained.text()
    numbers = {line.number for line in explained.facts.lines}
    assert explained.findings[0].evidence
    assert all(set(finding.evidence) <= numbers for finding in explained.findings)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_healthy_run_has_no_finding(program, tmp_path):
    explained = judged(program, tmp_path, sick=False)
    assert not explained.findings, explained.text()
    assert explained.facts.lines


def test_the_zoo_has_forty_programs():
    assert len(ZOO) >= 40
    assert len(EXCEPTIONS) <= 2
    assert len({program.name for program in ZOO}) == len(ZOO)


def test_every_finding_is_on_the_page_about_them():
    page = (Path(__file__).parents[2] / "docs/howto/explain-clients.md").read_text(encoding="utf-8")
    table = set(re.findall(r"`([a-z0-9-]+)`", page[page.index("| about | findings |") : page.index("Times are those of the machine")]))
    sources = [path.read_text(encoding="utf-8") for path in Path(rules.__file__).parent.glob("*.py")]
    assert table == {code for source in sources for code in re.findall(r'(?:found|_Meaning)\(\s*"([a-z0-9-]+)"', source)}
