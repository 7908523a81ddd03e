"""A Rust crate has one binary of integration tests: a file that it does not name would never run."""

from __future__ import annotations

from pathlib import Path

import pytest

RUST = Path(__file__).resolve().parents[2] / "rust"
ALONE = {"records"}  # its files are binaries of their own


@pytest.mark.parametrize("crate", sorted({path.parent.parent.name for path in RUST.glob("*/tests/*.rs")} - ALONE))
def test_every_file_of_tests_is_a_module_of_the_one_binary(crate: str) -> None:
    folder = RUST / crate / "tests"
    files = {path.stem for path in folder.iterdir()} - {"main"}
    assert {line.removeprefix("mod ").removesuffix(";") for line in (folder / "main.rs").read_text().splitlines() if line.startswith("mod ")} == files
