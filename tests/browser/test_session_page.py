"""The page of a session does with clicks and keys what it says; what clients send stays text; it loads what it shows."""

import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import fletchlog as fl
from fletchlog.explain.session.explained import of_facts
from fletchlog.explain.session.facts import Facts
from fletchlog.explain.session.rows import Line
from pytest_fletchlog.kafka import Kafka

pytestmark = pytest.mark.timeout(120)
MARKUP = "<img src=x onerror=\"document.title='bad'\"></script><script>document.title='bad'</script>"


def text(browser, css):
    return browser.find_element(By.CSS_SELECTOR, css).get_attribute("textContent")


def press(browser, *keys):
    for key in keys:
        browser.find_element(By.TAG_NAME, "body").send_keys(key)


def until(holds, limit=10):
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def request(browser):
    return int(text(browser, "#where").split(" ")[1].replace(",", ""))


def here(browser):
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "tr.here td")]


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("sessions") / "session.fltrace"
    with Kafka(record=path) as kafka:
        topic = kafka.topic(name="orders", config={"max.message.bytes": "1000"})
        writer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": MARKUP, "linger.ms": 0})
        for size in (10, 2000, 10):
            writer.produce(topic, "x" * size)
            writer.flush(10)
    return fl.explain.clients(path)


@pytest.fixture
def shown(opened, small, tmp_path):
    browser = opened(tmp_path / "session.html", small.page())
    until(lambda: here(browser))
    return browser


def test_a_finding_leads_to_its_requests(shown, small):
    finding = small.findings[0]
    assert finding.code == "message-too-large"
    assert finding.text in text(shown, "#findings")
    shown.find_element(By.CSS_SELECTOR, ".evidence button").click()
    until(lambda: here(shown)[0] == str(finding.evidence[0]))
    assert "MESSAGE_TOO_LARGE" in here(shown)[-1]


def test_keys_step_through_requests(shown, small):
    press(shown, Keys.HOME)
    until(lambda: here(shown)[0] == "1")
    press(shown, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    until(lambda: here(shown)[0] == "3")
    press(shown, Keys.END)
    until(lambda: here(shown)[0] == str(len(small.facts.lines)))
    press(shown, Keys.HOME, "n")
    until(lambda: "MESSAGE_TOO_LARGE" in here(shown)[-1])
    assert shown.execute_script("return location.hash") or request(shown)


def test_the_finder_finds_a_request_an_api_and_says_what_it_does_not_find(shown):
    field = shown.find_element(By.ID, "query")
    field.send_keys("2", Keys.ENTER)
    until(lambda: here(shown)[0] == "2")
    field.clear()
    field.send_keys("produce", Keys.ENTER)
    until(lambda: here(shown)[4].startswith("Produce"))
    field.clear()
    field.send_keys("nothing of this name", Keys.ENTER)
    until(lambda: "Nothing is called nothing of this name" in text(shown, "#found"))


def test_what_a_client_sends_is_text(shown):
    assert shown.title != "bad"
    assert not shown.find_elements(By.TAG_NAME, "img")
    shown.find_element(By.ID, "tab-clients").click()
    assert MARKUP in text(shown, "#clients")
    assert not shown.find_elements(By.TAG_NAME, "img")
    assert shown.title != "bad"


def test_it_is_light_or_dark(shown):
    was = shown.execute_script("return document.documentElement.dataset.theme")
    press(shown, "t")
    until(lambda: shown.execute_script("return document.documentElement.dataset.theme") != was)


def test_two_hundred_clients_and_a_million_requests_are_shown_at_once(opened, tmp_path):
    facts = Facts()
    facts.clients = [(f"client-{number}", "apache-kafka-java", "4.4.0") for number in range(200)]
    facts.lines = [Line(i + 1, i % 200, i % 200 + 1, "Fetch", 12, i * 50, i * 50 + 900, 100, 1000, "answered", None) for i in range(1_000_000)]

    facts.last_us = 50_000_000
    for number in range(200):
        facts.apis[number] = Counter(Fetch=5000)
    page = of_facts(facts).page()
    browser = opened(tmp_path / "large.html", page)
    until(lambda: here(browser), limit=5)
    began = time.monotonic()
    press(browser, Keys.END)
    until(lambda: here(browser)[0] == "1,000,000", limit=5)
    press(browser, Keys.HOME)
    until(lambda: here(browser)[0] == "1", limit=5)
    assert time.monotonic() - began < 5
