"""`fletchlog explain FILE.fltrace` and `fletchlog explain kafka://..` without topics: what clients do, and what is wrong."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError, fail
from fletchlog.cli.delivery import write_file
from fletchlog.cli.text import counted, note, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fletchlog.explain.session import Explained, Finding, Session

MAGIC = b"fltrace\n"
NEVER = "never"
# between two reads of a session that is being recorded
PAUSE_S = 0.5
FAIL_ON = ("error", "warning", NEVER)


def is_session(path: str) -> bool:
    """Whether a file is a recorded session, by its first bytes, or its name."""
    if not Path(path).is_file():
        return False
    try:
        with Path(path).open("rb") as source:
            return source.read(len(MAGIC)) == MAGIC or path.endswith(".fltrace")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None


def explain_session(path: str, *, html: Path | None, as_json: Path | None, text: bool, follow: bool, fail_on: str, max_poll_records: int | None) -> None:
    """Explains a session, and fails if it has findings of the level `fail_on`."""
    from fletchlog.explain.session import clients

    check_level(fail_on)
    explained = _followed(path, max_poll_records) if follow else clients(path, max_poll_records=max_poll_records)
    if html is not None:
        write_file(html, explained.page())
    if as_json is not None:
        write_file(as_json, json.dumps(explained.as_dict(), separators=(",", ":")))
    if not follow and (text or (html is None and as_json is None)):
        say(explained.text())
    end(explained.findings, fail_on)


def explain_live(name: str, client: Mapping[str, Any], fail_on: str) -> None:
    """Explains the groups of a live cluster."""
    import fletchlog as fl
    from fletchlog.cli.common import CLUSTER_MS
    from fletchlog.explain.session import live

    check_level(fail_on)
    with fl.Cluster(name, {"default.api.timeout.ms": CLUSTER_MS} | dict(client)) as cluster:
        text, findings = live(cluster, name)
    say(text)
    end(findings, fail_on)


def check_level(fail_on: str) -> None:
    """Refuses what is no level."""
    if fail_on not in FAIL_ON:
        raise CommandError(f"--fail-on {fail_on}: give {', '.join(FAIL_ON[:-1])} or {NEVER}")


def end(findings: list[Finding], fail_on: str) -> None:
    """The exit code 1 for findings of this level, or above it."""
    failing = [finding for finding in findings if fail_on == "warning" or (fail_on == "error" and finding.level == "error")]
    if failing:
        fail(f"{counted(len(failing), 'finding')}: {', '.join(dict.fromkeys(finding.code for finding in failing))}")


def _followed(path: str, max_poll_records: int | None) -> Explained:
    """Reads on until the recording ends or Ctrl-C, and prints findings as they appear."""
    from fletchlog.explain.session import Session

    session = Session(path)
    said: set[tuple[str, str]] = set()
    explained, took, fresh = _look(session, max_poll_records, said), 0.0, False
    try:
        while True:
            ended = session.has_ended
            fresh |= any(hasattr(item, "api") for item in session.read_on())
            # a look costs as much as all requests so far: it takes at most a fifth of the time
            if fresh and (ended or time.monotonic() - took * 5 >= explained[1]):
                explained, fresh = _look(session, max_poll_records, said), False
                took = time.monotonic() - explained[1]
            if ended:
                break
            time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        note("stopped")
    return explained[0]


def _look(session: Session, max_poll_records: int | None, said: set[tuple[str, str]]) -> tuple[Explained, float]:
    """What there is now, and when that was; prints findings that were not printed yet."""
    from fletchlog.explain.session import clients
    from fletchlog.explain.session.text import findings_text

    began = time.monotonic()
    explained = clients(session, max_poll_records=max_poll_records)
    fresh = [finding for finding in explained.findings if (finding.code, finding.about) not in said]
    said |= {(finding.code, finding.about) for finding in fresh}
    if fresh:
        say("\n".join(findings_text(fresh, len(said) - len(fresh) + 1)[1:]))
        sys.stdout.flush()
    return explained, began
