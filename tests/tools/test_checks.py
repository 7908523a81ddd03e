"""The checks of `make lint` over the sources: a function without a caller, a long one, and a property without a reader are found, by name."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_callers  # noqa: E402
import check_config  # noqa: E402
import check_edges  # noqa: E402
import check_words  # noqa: E402


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources; a test takes back what it plants."""
    root = tmp_path_factory.mktemp("tree")
    for source in (ROOT / "rust").glob("*/src"):
        shutil.copytree(source, root / source.relative_to(ROOT))
    return root


def plant(root: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str) -> None:
    path, text = root / file, (ROOT / file).read_text()
    assert text.count(old) == 1, f"{file} has `{old}` {text.count(old)} times"
    monkeypatch.setattr(Path, "read_text", lambda self, *a, read=Path.read_text, **k: text.replace(old, new) if self == path else read(self, *a, **k))


def test_every_property_of_the_table_is_read() -> None:
    assert check_config.breaches(ROOT)[1] == []


def test_a_function_without_a_caller_is_found(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [
        "/// Called by itself, in a comment `never_called(1)`.\n    pub fn never_called(&self) {\n        self.never_called();\n    }",
        # other types have methods of these names, and they are called
        "pub fn retention_ms(&self) {}",
        "pub fn high_watermark(&self) {}",
        # called in a test only
        '#[cfg(test)]\n    fn test(&self) {\n        self.tested();\n    }\n    pub fn tested(&self) {\n        log::info!("tested()");\n    }',
        "pub fn called(&self) {}\n    pub(super) fn caller(&self) {\n        self.called();\n    }",
    ]
    plant(copied, monkeypatch, "rust/client/src/consumer/metadata.rs", "impl ConsumerMetadata {", "\n    ".join(["impl ConsumerMetadata {", *functions]))
    # one that loses its last caller
    plant(copied, monkeypatch, "rust/python/src/broker.rs", ".run_retention()", ".is_closed()")
    monkeypatch.setitem(check_callers.EXCEPTED, "Broker::close", "planted")
    found = check_callers.breaches(copied)[1]
    planted = [breach for breach in found if breach.startswith("rust/client/src/consumer/metadata.rs:")]
    assert [breach.split("`")[1] for breach in planted] == [
        f"ConsumerMetadata::{name}" for name in ("never_called", "retention_ms", "high_watermark", "tested")
    ]
    assert "`Broker::close` is excepted (planted), but is called or gone: remove the entry" in found
    lost = [breach for breach in found if breach not in planted and "is excepted" not in breach]
    assert [breach.split("`")[1] for breach in lost] == ["Broker::run_retention"]


def test_a_property_that_is_excepted_and_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check_config.WITHOUT_EFFECT, "producer linger.ms", "planted")
    assert any("`producer linger.ms` is excepted (planted)" in breach for breach in check_config.breaches(ROOT)[1])


def test_a_property_that_is_only_in_the_table_is_found(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = '    row(\n        "planted.ms",\n        Kind::Int(0, i32::MAX),\n        Some("1"),\n        "Never read.",\n    ),\n'
    table = "pub(super) const KEYS: &[ConfigKey] = &[\n"
    plant(copied, monkeypatch, "rust/api/src/config_table/producer.rs", table, table + row)
    assert [breach for breach in check_config.breaches(copied)[1] if "`planted.ms` of a producer is read nowhere" in breach]


def test_a_property_that_only_another_client_reads_is_found(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        copied,
        monkeypatch,
        "rust/client/src/producer/config.rs",
        'config.long("metadata.max.age.ms")',
        'METADATA_MAX_AGE_MS // config.long("metadata.max.age.ms")\n',
    )
    found = [breach for breach in check_config.breaches(copied)[1] if "`metadata.max.age.ms`" in breach]
    assert found == ["`metadata.max.age.ms` of a producer is read nowhere: read it, or remove the row"]


@pytest.mark.parametrize(
    ("file", "line", "breach"),
    [
        ("broker/src/log_manager/cleaner.rs", "use crate::replica_manager::ReplicaManager;", "log_manager must not use replica_manager"),
        ("client/src/net/metadata.rs", "use crate::{Consumer, ClientError};", "net must not use consumer/consumer"),
        ("client/src/consumer/metadata.rs", "use super::{Interrupt, settings::Settings};", "consumer/metadata must not use consumer/settings"),
        ("client/src/group/leader.rs", "use super::super::consumer::Consumer;", "group must not use consumer/consumer"),
        ("client/src/group/mod.rs", "use crate::group::legacy::LegacyConsumer;", "group must not use group/legacy"),
    ],
)
def test_no_module_uses_one_in_front_of_it(file: str, line: str, breach: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_edges.breaches_of_layers() == []
    planted = ROOT / "rust" / file
    text = f"{line}\n" + planted.read_text()
    monkeypatch.setattr(Path, "read_text", lambda self, *a, read=Path.read_text, **k: text if self == planted else read(self, *a, **k))
    assert check_edges.breaches_of_layers() == [f"rust/{file}:1: {breach}, which is in front of it"]


def test_the_texts_of_users_have_no_banned_phrase() -> None:
    assert [breach for path in check_words.files() for breach in check_words.of_file(path)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("served but for KIP-848", "but for"),
        ("a poll goes\non with the next", "goes on"),
        ("10 records a second", "records a second"),
        ("one a node", "one a node"),
        ("a `Consumer` a thread", "a Consumer a thread"),
        ("the outcome, as `result()` has it", "as result() has it"),
        ("where there is none", "there is none"),
        ("a thread of its own", "of its own"),
    ],
)
def test_a_banned_phrase_is_found(text: str, found: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{text}, and more.\n")
    (breach,) = check_words.of_file(page)
    assert breach.startswith(f"{page}:3: '{found}': ")


def test_code_headings_and_longer_words_are_no_phrases(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Time\n\nA record, once, on and butter for ages, `goes on`.\n\n```text\nbut for\n```\n")
    assert check_words.of_file(page) == []


def test_docstrings_of_a_stub_are_texts(tmp_path: Path) -> None:
    stub = tmp_path / "a.pyi"
    stub.write_text('# goes on\ndef f() -> None:\n    """Takes\n    so many."""\n')
    assert check_words.of_file(stub) == [f"{stub}:4: 'so many': N, this many"]
