"""Every code block of the documentation site runs, page by page, in a directory of its own."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

import fletchlog as fl
from fletchlog.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def run(page: str, namespace: dict[str, Any]) -> None:
    run_blocks(blocks(page), page, namespace)


def run_blocks(found: list[tuple[str, str]], page: str, namespace: dict[str, Any]) -> None:
    for language, text in found:
        if language == "python":
            exec(compile(text, page, "exec"), namespace)
            continue
        if language == "text":  # a picture, Kafka's algorithms
            continue
        if language == "java":  # for the reader's own project
            continue
        if language == "console":  # a server that goes on, and the tools of Kafka that connect to it
            for line in text.splitlines():
                is_accepted(line.removeprefix("$ "))
            continue
        assert language == "sh", f"{page}: a block of {language or 'no language'} is not tested"
        for line in text.splitlines():
            command, *words = shlex.split(line)
            assert command == "fletchlog", line
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, (line, result.output, result.exception)


def is_accepted(line: str) -> None:
    """Fails if `line` calls fletchlog with arguments that it does not take. The command does not run."""
    name, *words = shlex.split(line, comments=True)
    if name == "fletchlog":
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        name, command, words = group.resolve_command(group.make_context(name, list(words)), words)
        assert command is not None
        command.make_context(name, words)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "howto/pyspark.md"])
@pytest.mark.timeout(60)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {})


def test_most_pages_have_something_to_run() -> None:
    assert sum(bool(blocks(page)) for page in PAGES) >= 12
    assert {language for page in PAGES for language, _ in blocks(page)} == {"python", "sh", "text", "console", "java"}


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
    made = dict(hooks.on_files([], None))
    linked = {
        (Path(page).parent / target).as_posix().replace("howto/../", "").replace("promises/../", "")
        for page in PAGES
        for target in re.findall(r"\]\(([^)]*\.(?:svg|html))\)", (DOCS / page).read_text(encoding="utf-8"))
    }
    assert linked == set(made)
    told = hooks.on_page_markdown((DOCS / "reference/config.md").read_text(), None)
    assert all(f"`{key.name}`" in told for key in fl.config_table())
    fair = hooks.on_page_markdown("<!-- fairness -->", None)
    # what decides the same is one row
    assert fair.count("Java client") == 5
    assert all(release in fair for release in ("2.6", "3.0, 3.1, 3.6: the same", "3.9", "4.1", "4.3"))
    assert "KIP-387" in fair
    retried = hooks.on_page_markdown("<!-- retries -->", None)
    assert retried.index("retried") < retried.index("acknowledged")


def test_the_differences_are_those_of_the_readme() -> None:
    table = re.compile(r"^\| description \| Kafka \|\n(?:\|.*\n)+", re.MULTILINE)
    readme, page = (table.search(path.read_text(encoding="utf-8")) for path in (DOCS.parent / "README.md", DOCS / "differences.md"))
    assert readme is not None
    assert page is not None
    assert readme[0] == page[0]
