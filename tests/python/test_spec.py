"""Cited sections of docs/kafka and rows of docs/reliability.md exist, and a citation that leads nowhere is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_spec  # noqa: E402

BOOK = """# 7 Poll {#7}

## 7.1 Defaults {#7.1}

See [7.2].

## 7.2 Order {#7.2}

1. First.
   {#7.2.1}
2. Second.
   {#7.2.2}

[7.2]: #7.2
"""
# written with a mark, so that the check does not read the texts of this file as citations
SPEC = "spec"
MARK = "§"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs/kafka").mkdir(parents=True)
    (tmp_path / "docs/kafka/07.md").write_text(BOOK)
    (tmp_path / "docs/reliability.md").write_text("| fault | outcome |\n|---|---|\n| C1 kill | kept |\n| C4, C5 damage | reported |\n")
    (tmp_path / "rust").mkdir()
    return tmp_path


def cite(tree: Path, text: str) -> tuple[int, list[str]]:
    (tree / "rust/poll.rs").write_text(text.replace(MARK, SPEC))
    return check_spec.breaches(tree)


def test_every_citation_of_the_project_leads_somewhere() -> None:
    count, found = check_spec.breaches(ROOT)
    assert found == []
    assert count > 300


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("//! Polls (§ 7.3).", "7.3"),
        ("//! Polls (§ 7.1, 7.4).", "7.4"),
        ("//! Polls (§ 7.1,\n//! 7.5).", "7.5"),
        ("//! Polls (§ 7.1 - 7.3).", "7.3"),
        ("//! Polls (§ 7.2 step 3).", "7.2.3"),
        ("//! Polls (§ 7.2, steps 1-3).", "7.2.3"),
        ("//! § 8 says nothing.", "8"),
    ],
)
def test_a_section_that_does_not_exist_is_named(tree: Path, text: str, missing: str) -> None:
    _, found = cite(tree, text)
    assert found
    assert set(found) == {f"rust/poll.rs:1: {SPEC} {missing} is no section of docs/kafka"}


@pytest.mark.parametrize("text", ["// (reliability C1, C2)", "// (docs/reliability.md, C4 and\n// C2)", "// Rows C1, C2 of docs/reliability.md."])
def test_a_row_that_does_not_exist_is_named(tree: Path, text: str) -> None:
    assert cite(tree, text) == (2, ["rust/poll.rs:1: C2 is no row of docs/reliability.md"])
    assert cite(tree, text.replace("C2", "C5")) == (2, [])


def test_sections_that_exist_are_found(tree: Path) -> None:
    assert cite(tree, "// § 7\n// § 7.1-7.2\n// § 7.2, steps 1-2, 7.1\n// § 7.2.1") == (8, [])


def test_a_reference_within_the_book_must_be_a_link_to_a_section(tree: Path) -> None:
    page = tree / "docs/kafka/07.md"
    page.write_text(BOOK.replace("[7.2]: #7.2\n", ""))
    assert check_spec.breaches(tree)[1] == ["docs/kafka/07.md: [7.2] has no target at the end of the page"]
    page.write_text(BOOK.replace("[7.2]: #7.2", "[7.2]: 08.md#7.2"))
    assert check_spec.breaches(tree)[1] == ["docs/kafka/07.md: [7.2] leads to 08.md#7.2"]
    page.write_text(BOOK.replace("See [7.2]", "See [7.2] and [7.6]"))
    assert check_spec.breaches(tree)[1] == ["docs/kafka/07.md: [7.6] is no section of docs/kafka"]
