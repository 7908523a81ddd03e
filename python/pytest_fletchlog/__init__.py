"""pytest fixtures: a Kafka for a test, in milliseconds. The plugin is found by pytest when fletchlog is installed.

    def test_orders(kafka):
        topic = kafka.topic(partitions=3)
        kafka.produce(topic, [b"one", b"two"])
        my_application(kafka.bootstrap)
        assert kafka.records(topic).num_rows == 2

`kafka` is fresh for each test, `kafka_session` lives as long as the run (one for each worker of xdist), and `kafka_cluster(nodes=3)`
makes a cluster. When a test fails, its report shows the topics and what clients asked for; with `--fletchlog-record DIR` it names the
session file of each broker (`fletchlog.explain.session`). With `--fletchlog-fail-on error`, or the mark `fletchlog_fail_on("error")`, a test fails
whose clients `fletchlog.explain.clients` finds something wrong with. Nothing is imported before a fixture is used.

With annotations, `from pytest_fletchlog.kafka import Kafka`: `kafka` and `kafka_session` are a `Kafka`, `kafka_cluster` is a `Callable[..., Kafka]`.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from fletchlog.testing import FaultRule
    from pytest_fletchlog.kafka import Kafka

_KAFKAS = pytest.StashKey[list["Kafka"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The broker's properties, and where sessions are recorded, for every fixture."""
    parser.getgroup("fletchlog").addoption("--fletchlog-record", metavar="DIR", help="Record the session of each broker of the fixtures into a file in DIR.")
    parser.getgroup("fletchlog").addoption(
        "--fletchlog-fail-on",
        choices=("error", "warning"),
        help="Explain the sessions of the brokers of `kafka` and `kafka_cluster`, and fail a test whose clients have findings of this level.",
    )
    parser.addini("fletchlog_config", "Properties of the brokers of the kafka fixtures, a NAME=VALUE a line.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """The mark that fails a test for what its clients do."""
    config.addinivalue_line("markers", "fletchlog_fail_on(level): fail if the clients of the test have findings of this level, `error` or `warning`.")


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A fresh broker in memory with a listener on loopback, for one test."""
    with _opened(request) as opened:
        yield opened
    _judge(request, opened)


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker in memory with a listener on loopback that every test of the run shares."""
    with _opened(request) as opened:
        yield opened


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., Kafka]]:
    """Makes clusters: `kafka_cluster(nodes=3, config={...})`; `nodes={1: "r1", 2: "r2"}` gives ids and racks, `record` a file for its session.

    Each is closed after the test.
    """
    made: list[Kafka] = []

    def cluster(nodes: int | Mapping[int, str | None] = 3, config: dict[str, str] | None = None, record: str | os.PathLike[str] | None = None) -> Kafka:
        made.append(stack.enter_context(_opened(request, nodes, config, record)))
        return made[-1]

    with contextlib.ExitStack() as stack:
        yield cluster
    for opened in made:
        _judge(request, opened)


@contextlib.contextmanager
def _opened(
    request: pytest.FixtureRequest,
    nodes: int | Mapping[int, str | None] = 1,
    config: dict[str, str] | None = None,
    record: str | os.PathLike[str] | None = None,
) -> Iterator[Kafka]:
    """A broker whose state is shown when a test that uses it fails.

    Then it is let go: pytest keeps every test until the end of the run, and a broker in memory its records.
    """
    from pytest_fletchlog.kafka import Kafka

    lines = request.config.getini("fletchlog_config")
    given = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    with Kafka(nodes=nodes, config=given | (config or {}), record=record or _session_file(request)) as opened:
        kafkas = request.node.stash.setdefault(_KAFKAS, [])
        kafkas.append(opened)
        yield opened
    kafkas.remove(opened)


def _session_file(request: pytest.FixtureRequest) -> Path | None:
    """A new file in the directory of `--fletchlog-record`, named for the test, or in a temporary one if findings fail the test; None without both."""
    import re
    from pathlib import Path

    directory = request.config.getoption("--fletchlog-record")
    if directory is None and _level(request):
        directory = request.getfixturevalue("tmp_path_factory").mktemp("fletchlog-sessions")
    if directory is None:
        return None
    Path(directory).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.nodeid).strip("-") or "session"
    taken = len(request.node.stash.get(_KAFKAS, []))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "") if request.scope == "session" else ""
    return Path(directory, "-".join(filter(None, [name[-150:], worker, str(taken) if taken else ""])) + ".fltrace").absolute()


def _level(request: pytest.FixtureRequest) -> str | None:
    """For which findings the test fails; None: for none. A broker that tests share is judged by none of them."""
    if request.scope != "function":
        return None
    mark = request.node.get_closest_marker("fletchlog_fail_on")
    level: str | None = mark.args[0] if mark and mark.args else request.config.getoption("--fletchlog-fail-on")
    return level


def _judge(request: pytest.FixtureRequest, opened: Kafka) -> None:
    """Fails the test for what its clients did; the broker is closed, so its session is whole."""
    level = _level(request)
    if level is None or opened.session is None:
        return
    from fletchlog.explain import clients
    from fletchlog.explain.session.text import findings_text

    if failing := clients(opened.session).failing(level):
        lines = findings_text(failing)
        pytest.fail("\n".join([*lines, f"Session: {opened.session}"]), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the brokers of a failed test hold to its report. A test whose rules for faults never applied has failed."""
    report = yield
    if call.when != "call":
        return report
    kafkas = [opened for node in item.listchain() for opened in node.stash.get(_KAFKAS, [])]
    idle = "\n".join(words for opened in kafkas for words in _idle(opened))
    if report.passed and idle:
        # As of any failure, pytest shows that of a test with the mark xfail as such.
        report.outcome = "skipped" if hasattr(report, "wasxfail") else "failed"
        report.longrepr = idle
    if report.failed:
        report.sections += [(f"Kafka at {opened.bootstrap}", _described(opened)) for opened in kafkas]
        report.sections += [(f"Session of {opened.bootstrap}", str(opened.session)) for opened in kafkas if opened.session]
    for opened in kafkas:
        _clear(opened)
    return report


def _idle(opened: Kafka) -> list[str]:
    """What the rules of a broker that did not apply lacked, and selectors without an action. A test may have closed it: then none is known."""
    words = []
    with contextlib.suppress(Exception):
        if unfinished := opened.faults.without_action():
            words += ["selections of requests without an action, which change nothing:", *(f"  {one} has no action, such as .error(..)" for one in unfinished)]
        if rules := opened.faults.never_applied():
            words += ["rules for faults never applied to a request (a rule may with optional=True):"]
            words += [f"  {rule.rule}: {rule.matched} request{'' if rule.matched == 1 else 's'} matched{_came(opened, rule)}" for rule in rules]
    return words


def _came(opened: Kafka, rule: FaultRule) -> str:
    """Why a rule did not apply: it begins later, or clients sent none of its APIs, or its other selectors do not fit those."""
    if rule.matched < rule.rule.get("nth", 1) and rule.matched:
        return f", and it begins with number {rule.rule['nth']}"
    if rule.matched or not (apis := rule.rule.get("api")):
        return ""
    of_api = opened.requests(api=apis)
    named = " or ".join([apis] if isinstance(apis, str) else apis)
    topics = ", ".join(sorted({topic for request in of_api for topic in request.topics}))
    return f" of {len(of_api)} {named}" + (f", for {topics}" if topics else "")


def _clear(opened: Kafka) -> None:
    """Ends the test's rules: later tests that share the broker do not see them."""
    with contextlib.suppress(Exception):
        opened.faults.clear()


def _described(opened: Kafka) -> str:
    """What it holds. A test may have closed it or taken it apart: that must not hide why the test failed."""
    try:
        return opened.describe()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test's own failure is what is reported
        return f"its state cannot be shown: {error!r}"
