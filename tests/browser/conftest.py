"""A headless browser that opens pages from files, and pages of real runs. Run by `make test-browser`; plain `make test` leaves it out."""

import os
import shutil

import pytest

import fletchlog as fl
from fletchlog.explain import against, page
from fletchlog.explain import polls as explain
from fletchlog.explain.compare import every_order

collect_ignore_glob = [] if os.environ.get("FLETCHLOG_BROWSER") else ["test_*.py"]

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --window-size=1400,1000 --force-device-scale-factor=1"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "no chromium on PATH (Debian: apt-get install chromium chromium-driver)"
    assert driver, "no chromedriver on PATH (Debian: apt-get install chromium chromium-driver)"
    options = Options()
    options.binary_location = chromium
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()


@pytest.fixture
def opened(browser):
    """Opens a page's text from a file and fails if it complains on the console."""

    def show(path, text):
        path.write_text(text, encoding="utf-8")
        browser.get(path.as_uri())
        return browser

    yield show
    complaints = [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]
    assert not complaints


def runs_of(topics, partitions, records, *, polls, most, every=True):
    with fl.Broker.in_memory(nodes=3) as broker:
        for topic in topics:
            broker.create_topic(topic, partitions=partitions)
            with fl.Producer(broker, {"linger.ms": 10_000}) as producer:
                for partition in range(partitions):
                    for _ in range(records):
                        producer.send(topic, value=b"0123456789", partition=partition)
        config = {"max.poll.records": most, "max.partition.fetch.bytes": 16384}
        first = explain(broker, topics, config, polls=polls, title="example")
        orders = every_order(first) if every else ["kip-387"]
        return [first, *against(broker, topics, config, orders, polls=polls)]


@pytest.fixture(scope="session")
def small_runs():
    return runs_of(["orders", "payments"], 3, 100, polls=40, most=30)


@pytest.fixture(scope="session")
def small_page(small_runs):
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders", partitions=2)
        config = {"fletchlog.trace": True, "enable.idempotence": True, "batch.size": 1, "retry.backoff.ms": 1}
        faults = fl.testing.FaultPlan()
        faults.on(api="Produce", nth=2).lose_response()
        faults.on(api="Produce", nth=4).error("NOT_ENOUGH_REPLICAS")
        with fl.Producer(broker, config, faults=faults) as producer:
            with faults.collect_sends():
                for i in range(40):
                    producer.send("orders", value=b"v", partition=i % 2)
            producer.flush()
            return page(small_runs, producer.trace())


@pytest.fixture(scope="session")
def large_runs():
    return runs_of(["orders", "payments", "returns", "users"], 50, 2500, polls=10_000, most=50, every=False)
