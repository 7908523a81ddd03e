"""The page "Test a service": each of its tests fails for the service with the mistake, with what the page shows, and passes for the other one.

Each test runs as a reader runs it: a service and its test, as they are in the page, are one file, and pytest is a separate process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lateness import Lateness

PAGE = (Path(__file__).resolve().parents[2] / "docs/howto/test-a-service.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTIONS = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
MISTAKES = [section for section in SECTIONS if re.match(r"\d+\. ", section)]
OTHERS = [code for section in SECTIONS if section not in MISTAKES for language, code in BLOCK.findall(section) if language == "python"]
# without the plugins of this project's tests, which take longer to import than the tests run
PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "pytest_fletchlog")
PYTEST = [sys.executable, "-m", "pytest", *PLUGINS, "-rA", "--timeout=30"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def name(section):
    """What a test prints of its section: the number of the mistake."""
    return f"test_{int(section.partition('.')[0]):02}"


# a machine is busy if it lets a thread wait for so long
BUSY_S = 0.03
ATTEMPTS = 3
ALL_FAIL = {("FAILED", name(section)) for section in MISTAKES}
# the first one waits for both runs, which take some ten seconds
pytestmark = pytest.mark.timeout(330)


def files(service):
    """The name and the text of every file, with the wrong services or the right ones."""
    for section in MISTAKES:
        assert [language for language, _ in BLOCK.findall(section)] == ["python", "python", "text", "python"], section
        wrong, test, _, right = (text for _, text in BLOCK.findall(section))
        yield f"{name(section)}.py", f"{wrong if service == 'wrong' else right}\n\n{test}"
    if service == "right":
        yield from ((f"test_other_{number}.py", code) for number, code in enumerate(OTHERS))


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What pytest prints for the wrong services and for the right ones; once more if that is another outcome while the machine was busy."""
    for _ in range(ATTEMPTS):
        with Lateness() as late:
            found = run(tmp_path_factory)
        if late.most_s < BUSY_S or (outcomes(found["wrong"]) == ALL_FAIL and {outcome for outcome, _ in outcomes(found["right"])} == {"PASSED"}):
            break
    return found


def run(tmp_path_factory):
    """Both runs wait most of the time: they run at once."""
    runs = {}
    for service in ("wrong", "right"):
        folder = tmp_path_factory.mktemp(service)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for file, text in files(service):
            (folder / file).write_text(text)
        runs[service] = subprocess.Popen(PYTEST, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return {service: run.communicate(timeout=100)[0] for service, run in runs.items()}
    finally:
        for run in runs.values():
            run.kill()
            run.wait()
            run.stdout.close()


def outcomes(printed):
    """The outcome of the tests of each file: the lines at the end."""
    return set(re.findall(r"^(\w+) (test_\w+)\.py::", printed, re.MULTILINE))


@pytest.mark.parametrize("section", MISTAKES, ids=name)
def test_a_mistake_is_found_and_its_remedy_passes(printed, section):
    assert ("FAILED", name(section)) in outcomes(printed["wrong"]), printed["wrong"]
    assert ("PASSED", name(section)) in outcomes(printed["right"]), printed["right"]
    (test,) = re.findall(r"^def (test_\w+)", section, re.MULTILINE)
    report = re.search(rf"^_+ {test} _+$(.*?)^(?:_|=){{5}}", printed["wrong"], re.DOTALL | re.MULTILINE)
    for line in BLOCK.findall(section)[2][1].splitlines():
        pattern = re.escape(line).replace(re.escape("..."), ".*")
        assert re.search(pattern, report.group(1)), (line, report.group(1))


def test_ten_mistakes_fail_and_all_other_tests_of_the_page_pass(printed):
    assert len(MISTAKES) == 10
    assert outcomes(printed["wrong"]) == ALL_FAIL
    assert {outcome for outcome, _ in outcomes(printed["right"])} == {"PASSED"}, printed["right"]
    assert {file for _, file in outcomes(printed["right"])} == {file.removesuffix(".py") for file, _ in files("right")}
