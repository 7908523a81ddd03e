"""The page of a session does with clicks and keys what it says; what clients send stays text; it loads what it shows."""

import time

import pytest
from confluent_kafka import Producer
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import fletchlog as fl
from fletchlog.explain.session.columns import Lines
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


def test_the_time_line_is_zoomed_with_the_keys_of_the_other_page(shown):
    def window():
        return text(shown, "#window")

    assert window().startswith("all ")
    press(shown, "+", "+")
    until(lambda: " to " in window())
    near = window()
    press(shown, "-")
    until(lambda: window() not in {near, ""})
    press(shown, "0")
    until(lambda: window().startswith("all "))
    shown.find_element(By.ID, "in").click()
    until(lambda: " to " in window())
    shown.find_element(By.ID, "all").click()
    until(lambda: window().startswith("all "))


def test_what_is_selected_is_in_the_part_that_is_shown(shown):
    press(shown, Keys.HOME)
    until(lambda: request(shown) == 1)
    press(shown, *"++++++++")
    first = text(shown, "#window")
    press(shown, Keys.END)
    until(lambda: text(shown, "#window") != first)
    until(lambda: request(shown) > 1)
    press(shown, *"00", Keys.HOME)
    until(lambda: request(shown) == 1)
    press(shown, Keys.PAGE_DOWN)
    until(lambda: request(shown) > 1)


def test_the_requests_play(shown):
    press(shown, Keys.HOME)
    until(lambda: request(shown) == 1)
    press(shown, " ")
    until(lambda: request(shown) > 1)
    press(shown, " ")
    assert text(shown, "#play").endswith("play")


def test_requests_are_drawn_one_by_one_when_few_are_shown(opened, tmp_path):
    browser = opened(tmp_path / "zoomed.html", of_facts(many(2, 200_000)).page())
    until(lambda: here(browser), limit=5)
    painted = "const c = document.getElementById('timeline'); return c.toDataURL()"
    far = browser.execute_script(painted)
    press(browser, *"++++++++++++")
    until(lambda: browser.execute_script(painted) != far)
    # bars from arrival to response are as high as a row
    ink = """
        const c = document.getElementById('timeline'), pen = c.getContext('2d');
        const row = pen.getImageData(190, 34 + 6, c.width - 204, 1).data;
        let count = 0;
        for (let i = 3; i < row.length; i += 4) count += row[i] > 0;
        return count;
    """
    until(lambda: browser.execute_script(ink) > 50)


def test_a_request_is_found_by_its_number_where_others_were_not_recorded(opened, tmp_path):
    facts = many(1, 100)
    facts.lines = Lines.of([line._replace(number=line.number + 7) for line in facts.lines])
    browser = opened(tmp_path / "gaps.html", of_facts(facts).page())
    until(lambda: here(browser), limit=5)
    field = browser.find_element(By.ID, "query")
    field.send_keys("50", Keys.ENTER)
    until(lambda: here(browser)[0] == "50")
    field.clear()
    field.send_keys("3", Keys.ENTER)
    until(lambda: "no request 3" in text(browser, "#found"))


def many(clients, requests):
    facts = Facts()
    facts.clients = [(f"client-{number}", "apache-kafka-java", "4.4.0") for number in range(clients)]
    lines = [Line(i + 1, i % clients, i % clients + 1, "Fetch", 12, i * 50, i * 50 + 900, 100, 1000, "answered", None) for i in range(requests)]
    facts.lines = Lines.of(lines)
    facts.last_us = requests * 50
    return facts


def test_two_hundred_clients_and_a_million_requests_are_shown_at_once(opened, tmp_path):
    page = of_facts(many(200, 1_000_000)).page()
    browser = opened(tmp_path / "large.html", page)
    until(lambda: here(browser), limit=5)
    # the time line is longer than its window: the first clients are seen, and the last ones after scrolling
    seen = """
        const around = document.getElementById('scroller').getBoundingClientRect();
        return document.elementFromPoint(around.left + around.width / 2, around.top + around.height / 2).id;
    """
    assert browser.execute_script(seen) == "timeline"
    browser.execute_script("document.getElementById('scroller').scrollTop = 1e9")
    assert browser.execute_script(seen) == "timeline"
    began = time.monotonic()
    press(browser, Keys.END)
    until(lambda: here(browser)[0] == "1,000,000", limit=5)
    press(browser, Keys.HOME)
    until(lambda: here(browser)[0] == "1", limit=5)
    assert time.monotonic() - began < 5
