"""The rules that find what is wrong: each looks at a session and yields findings; modules by what they look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.explain.session.finding import LEVELS
from fletchlog.explain.session.rules import of_access, of_commits, of_errors, of_fetches, of_groups, of_members, of_producers, of_share_groups, of_transactions

if TYPE_CHECKING:
    from fletchlog.explain.session.finding import Finding, Scene

_MODULES = (of_errors, of_groups, of_members, of_share_groups, of_commits, of_fetches, of_producers, of_transactions, of_access)


def findings_of(scene: Scene) -> list[Finding]:
    """What is wrong, the most important first: errors before warnings, causes before what follows from them."""
    every = [finding for module in _MODULES for finding in module.rule(scene)]
    return sorted(every, key=lambda finding: (LEVELS.index(finding.level), -finding.weight, finding.evidence))
