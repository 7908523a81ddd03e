"""Every code block of the documentation site runs, page by page, in a directory of its own."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import re
import shlex
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.cli.app import commands, found
from fletchlog.cli.arguments import read
from tests.support.command_line import invoke

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def run(page: str, namespace: dict[str, Any]) -> None:
    run_blocks(blocks(page), page, namespace)


def run_blocks(found: list[tuple[str, str]], page: str, namespace: dict[str, Any]) -> None:
    for language, block in found:
        # a command may go on in the next line
        text = block if language == "python" else block.replace("\\\n", "")
        if language == "python":
            exec(compile(text, page, "exec"), namespace)
            continue
        if language == "text":  # a picture, Kafka's algorithms
            continue
        if language == "java":  # for the reader's own project
            continue
        if language == "toml":  # a plan of faults
            with fl.Broker.in_memory() as broker, broker.listen() as listener:
                listener.faults.load(tomllib.loads(text))
            continue
        if language == "console":  # a server that goes on, tools of Kafka, pip and make
            for line in text.splitlines():
                is_accepted(line.removeprefix("$ "))
            continue
        assert language == "sh", f"{page}: a block of {language or 'no language'} is not tested"
        for line in text.splitlines():
            command, *words = shlex.split(line)
            assert command == "fletchlog", line
            result = invoke(words)
            assert result.exit_code == 0, (line, result.output, result.exception)


def is_accepted(line: str) -> None:
    """Fails if `line` calls fletchlog with arguments that it does not take. The command does not run."""
    name, *words = shlex.split(line, comments=True)
    if name == "fletchlog":
        prog, command, rest = found(name, words)
        read(prog, command, rest)


# They need Spark and a server that speaks S3: tests/spark and tests/stores run them.
ELSEWHERE = {"howto/pyspark.md", "howto/spark-connect.md", "howto/spark-on-a-cluster.md", "howto/object-stores.md"}
# Its tests run as tests: tests/wire/test_service_mistakes.py.
ELSEWHERE |= {"howto/test-a-service.md"}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
@pytest.mark.timeout(60)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {})


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_code_fits_the_page(page: str) -> None:
    assert [line for _, text in blocks(page) for line in text.splitlines() if len(line) > 90] == []


def test_code_in_the_docstrings_of_the_reference_fits_the_page() -> None:
    named = {name for page in PAGES for name in re.findall(r"^::: (\S+)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)}
    modules = [found for found in map(pkgutil.resolve_name, sorted(named)) if isinstance(found, types.ModuleType)]
    assert {"fletchlog.errors", "fletchlog.serde"} < {module.__name__ for module in modules}
    for module in modules:
        text = inspect.getdoc(module) or ""
        code = "\n".join([*re.findall(r"^ {4}(.*)$", text, re.MULTILINE), *(block for _, block in BLOCK.findall(text))])
        assert [line for line in code.splitlines() if len(line) > 90] == [], module


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("howto/", "promises/"))])
def test_every_guide_and_every_promise_has_something_to_run(page: str) -> None:
    assert {"python", "sh"} & {language for language, _ in blocks(page)}


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert f" {page}\n" in navigation, page
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert ((DOCS / page).parent / target).resolve().is_file(), (page, target)


def test_what_is_generated_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    # mkdocs belongs to `make docs`; the hook needs only this class of it
    files = types.ModuleType("mkdocs.structure.files")
    files.File = type("File", (), {"generated": staticmethod(lambda _config, name, content: (name, content))})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", files)
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    repository = "https://example.org/fletchlog"
    made = dict(hooks.on_files([], {"repo_url": repository}))
    assert f"]({repository}/blob/main/ARCHITECTURE.md)" in made.pop("contributing.md")
    linked = {
        (Path(page).parent / target).as_posix().replace("howto/../", "").replace("promises/../", "")
        for page in PAGES
        for target in re.findall(r"\]\(([^)]*\.(?:svg|html))\)", (DOCS / page).read_text(encoding="utf-8"))
    }
    assert linked == {*made, "img/poll-order.svg"}
    # the picture of the README; `python docs/hooks.py` draws it again
    assert hooks.POLL_ORDER.read_text(encoding="utf-8") == hooks.poll_order()
    rendered = hooks.on_page_markdown((DOCS / "reference/config.md").read_text(), None)
    assert all(f"`{key.name}`" in rendered for key in fl.admin.config_table())
    rendered = hooks.on_page_markdown("<!-- errors -->", None)
    for name in fl.errors.__all__:
        assert f"| `{name}`" in rendered
        assert name == "KafkaError" or hooks.advice(getattr(fl.errors, name)) != hooks.ADVICE["KafkaError"], name
    assert all(hasattr(fl.errors, name) for name in hooks.ADVICE)
    fair = hooks.on_page_markdown("<!-- fairness -->", None)
    # what decides the same is one row
    assert [line.split(" | ")[0] for line in fair.splitlines()[2:]] == [
        "| Java client 2.6 (as 2.4 - 2.6)", "| Java client 3.0, 3.1, 3.6: the same", "| Java client 3.9 (as 3.7 - 3.9)", "| Java client 4.1, 4.4: the same",
        "| KIP-387",
    ]  # fmt: skip
    assert "KIP-387" in fair
    listed = hooks.on_page_markdown("<!-- commands -->", None)
    assert set(re.findall("^## (.*)$", listed, re.MULTILINE)) == {name for name, _ in commands()}
    for row in ("| `DIR` |  |", "| `FILE` | may be left out |", "| `--partitions` `-p` | `1`{.whole} |", "fletchlog consume data/ orders -n 20"):
        assert row in listed
    retried = hooks.on_page_markdown("<!-- retries -->", None)
    assert retried.index("retried") < retried.index("acknowledged")


def column(page: str, heading: str, number: int) -> list[str]:
    """The code of a column of the tables below a heading."""
    section = (DOCS / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip("` ") for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 5, heading
    return [row[number] for row in rows if row[number]]


def reached(root: Any, name: str) -> bool:
    for part in name.split("."):
        root = getattr(root, part, None)
    return root is not None


def test_names_of_other_clients_and_ours_are_real() -> None:
    confluent, python, aiokafka = pytest.importorskip("confluent_kafka"), pytest.importorskip("kafka"), pytest.importorskip("aiokafka")
    importlib.import_module("confluent_kafka.admin")
    importlib.import_module("aiokafka.admin")
    for heading, theirs in (("confluent-kafka", confluent), ("kafka-python", python), ("aiokafka", aiokafka)):
        assert [name for name in column("coming-from.md", heading, 0) if not reached(theirs, name)] == []
        assert [name for name in column("coming-from.md", heading, 1) if not reached(fl, name)] == []
    for heading in ("kcat", "Kafka's scripts"):
        for line in column("coming-from.md", heading, 1):
            is_accepted(line)
