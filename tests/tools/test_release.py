"""`make release` refuses what does not agree; `make wheel` finds what is wrong with a wheel."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import release  # noqa: E402
import wheels  # noqa: E402

CHANGELOG = "# Changelog\n\n## 0.2.0 - 2027-01-31\n\n### Added\n\n- This.\n\n## 0.1.0 - 2026-12-01\n\n- That.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "Cargo.toml": '[workspace.package]\nversion = "0.2.0"\n',
        "Cargo.lock": 'version = 4\n[[package]]\nname = "fletchlog-log"\nversion = "0.2.0"\n',
        "CHANGELOG.md": CHANGELOG,
        ".gitignore": "/.build/\n",
    }.items():
        (tmp_path / name).write_text(text)
    release.git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(tree: Path) -> None:
    for name, value in (("user.name", "t"), ("user.email", "t@example.org")):
        release.git(tree, "config", name, value)
    release.git(tree, "add", "--all")
    release.git(tree, "commit", "--quiet", "--message", "x")


def test_a_release_is_tagged_with_its_notes(tree: Path) -> None:
    assert release.tag(tree) == "0.2.0"
    assert (tree / ".build/release-notes.md").read_text() == "### Added\n\n- This.\n"
    assert release.git(tree, "tag", "--list", "--format=%(contents)") == "fletchlog 0.2.0\n\n### Added\n\n- This.\n"
    with pytest.raises(release.NotReadyError, match=r"v0\.2\.0 is there already"):
        release.checked(tree)


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        ("Cargo.toml", "0.2.0", "0.3.0", r"Cargo\.lock has fletchlog-log 0\.2\.0, Cargo\.toml 0\.3\.0"),
        ("CHANGELOG.md", "## 0.2.0 - 2027-01-31", "## Unreleased (0.2.0)", r"no section `## 0\.2\.0 - YYYY-MM-DD`"),
        ("CHANGELOG.md", "### Added\n\n- This.\n", "", r"0\.2\.0 of CHANGELOG\.md is empty"),
    ],
)
def test_what_does_not_agree_is_no_release(tree: Path, file: str, old: str, new: str, text: str) -> None:
    (tree / file).write_text((tree / file).read_text().replace(old, new))
    commit(tree)
    with pytest.raises(release.NotReadyError, match=text):
        release.checked(tree)


def test_changes_that_are_not_committed_are_no_release(tree: Path) -> None:
    (tree / "more").touch()
    with pytest.raises(release.NotReadyError, match="not committed"):
        release.checked(tree)


def test_the_versions_of_this_tree_agree() -> None:
    version = release.tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert version in (ROOT / "CHANGELOG.md").read_text()


def test_what_an_unpacked_sdist_has_is_what_the_sdist_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "UNPACKED", tmp_path / "unpacked")
    sdist = tmp_path / "fletchlog-1.tar.gz"

    def unpack(**files: str) -> Path:
        with tarfile.open(sdist, "w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"fletchlog-1/rust/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return wheels.unpacked(sdist)

    source = unpack(same="1", other="2", gone="3")
    assert source == tmp_path / "unpacked/fletchlog-1"
    for path in source.rglob("*"):
        os.utime(path, (1, 1))
    unpack(same="1", other="4")
    assert {path.name: path.read_text() for path in source.rglob("*") if path.is_file()} == {"same": "1", "other": "4"}
    # cargo compiles again what is younger
    assert (source / "rust/same").stat().st_mtime == 1
    assert (source / "rust/other").stat().st_mtime > 1


def test_the_links_of_the_readme_work_on_an_index() -> None:
    project = {"project": {"urls": {"Repository": "https://example.org/fletchlog"}}}
    readme = "![two orders](docs/img/order.svg) [limits](docs/limits.md) [KIP](https://example.org/kip)"
    assert wheels.absolute(readme, project) == (
        "![two orders](https://example.org/fletchlog/raw/main/docs/img/order.svg) "
        "[limits](https://example.org/fletchlog/blob/main/docs/limits.md) [KIP](https://example.org/kip)"
    )


def test_a_wheel_with_debug_information_or_without_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-g", "-shared", "-fPIC", "-o", "_core.abi3.so", "a.c"], cwd=tmp_path, check=True)
    wheel = tmp_path / "fletchlog-1-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "_core.abi3.so", "fletchlog/_core.abi3.so")
        archive.writestr("fletchlog-1.dist-info/METADATA", "Metadata-Version: 2.4\nName: fletchlog\nVersion: 1\nSummary: s\n\nSee [this](docs/this.md).\n")
    found = wheels.breaches(wheel)
    assert "it has debug information: [tool.maturin] strip" in found
    assert "there is no sboms/ in fletchlog-1.dist-info/" in found
    assert "Author is missing in METADATA" in found
    assert "Project-URL is missing in METADATA" in found
    assert "Programming Language :: Python :: 3.14 is missing in METADATA" in found
    assert "README has a link that does not work outside the repository: ](docs/this.md)" in found
    assert "there is no licenses/LICENSE in fletchlog-1.dist-info/" in found
