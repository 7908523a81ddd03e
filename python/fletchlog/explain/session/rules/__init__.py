"""The rules that find what is wrong: each looks at a session and yields findings; modules by what they look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import LEVELS, found, several
from fletchlog.explain.session.rules import of_access, of_commits, of_errors, of_fetches, of_groups, of_members, of_producers, of_share_groups, of_transactions

if TYPE_CHECKING:
    from fletchlog.explain.session.finding import Finding, Scene

_MODULES = (of_errors, of_groups, of_members, of_share_groups, of_commits, of_fetches, of_producers, of_transactions, of_access)


def _together(scene: Scene, findings: list[Finding]) -> list[Finding]:
    """One finding for all clients that share a client id, in place of one for each."""
    ids = {scene.name(number): name for number, (name, _, _) in enumerate(scene.facts.clients) if number in scene.facts.addresses}
    by: dict[tuple[str, ...], list[Finding]] = {}
    for at, finding in enumerate(findings):
        shared = ids.get(finding.about)
        by.setdefault((finding.code, finding.level, str(at)) if shared is None else (finding.code, finding.level, "", shared), []).append(finding)
    return [_joined(same) if len(same) > 1 else same[0] for same in by.values()]


def _joined(same: list[Finding]) -> Finding:
    first, *others = sorted(same, key=lambda finding: (-finding.count, finding.evidence))
    text = f"{first.text} The same applies to {several(finding.about for finding in others)}."
    evidence = [number for finding in same for number in finding.evidence]
    joined = found(first.code, first.level, first.weight, text, first.change, evidence, first.about)
    return replace(joined, count=sum(finding.count for finding in same))


def findings_of(scene: Scene) -> list[Finding]:
    """What is wrong, the most important first: errors before warnings, causes before what follows from them."""
    every = _together(scene, [finding for module in _MODULES for finding in module.rule(scene)])
    return sorted(every, key=lambda finding: (LEVELS.index(finding.level), -finding.weight, finding.evidence))
