"""The page of an audit and the picture of an assignment, as a browser shows them."""

import pytest
from selenium.webdriver.common.by import By

import fletchlog as fl
from fletchlog.audit import run as audit
from fletchlog.explain.owners import ownership
from fletchlog.explain.owners_picture import draw
from fletchlog.explain.shapes import to_svg

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def sized(browser):
    """Gives the page a width and a colour scheme, and takes them back."""

    def change(width, scheme):
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    yield change
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def report(tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("orders", partitions=12)
        with fl.Producer(broker) as producer:
            for ms in (1_700_000_000_000, 1_700_000_000_000 - 7_200_000):
                producer.send("orders", value=b"v", timestamp_ms=ms, partition=3)
    return audit(tmp_path / "data")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_a_breach_is_seen_at_once_and_nothing_is_beyond_the_edge(opened, sized, report, tmp_path, width, scheme):
    sized(width, scheme)
    page = opened(tmp_path / "audit.html", report.html({"lateness_max_ms": 60_000, "gaps_unexplained": 0}))
    verdict = page.find_element(By.CSS_SELECTOR, ".verdict")
    assert verdict.text.startswith("Failed: 1 of 12 partitions exceed a threshold.")
    assert verdict.rect["y"] + verdict.rect["height"] < 400
    (breach,) = page.find_elements(By.CSS_SELECTOR, ".breach")
    assert breach.text == "2 h ≤ 1 min"
    colours = {cell.value_of_css_property("background-color") for cell in page.find_elements(By.CSS_SELECTOR, ".breach, .kept, td.none")}
    assert len(colours) == 3
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_assignment_fits_its_page(opened, sized, tmp_path, scheme):
    sized(420, scheme)
    found = [ownership(name, {"orders": 6}, {m: ["orders"] for m in ("c1", "c2", "c3")}) for name in ("range", "sticky")]
    page = opened(tmp_path / "owners.html", f'<!doctype html><meta name="viewport" content="width=device-width">{to_svg(draw([("", found)]))}')
    said = [element.text for element in page.find_elements(By.CSS_SELECTOR, "svg text")]
    assert {"c1", "c2", "c3"} <= set(said)
    beyond = page.execute_script(
        """const box = document.querySelector("svg").getBoundingClientRect();
        return [...document.querySelectorAll("svg text, svg rect")].filter((e) => e.getBoundingClientRect().right > box.right + 1).map((e) => e.outerHTML)"""
    )
    assert beyond == []
    assert page.execute_script("return document.documentElement.scrollWidth") <= 420
