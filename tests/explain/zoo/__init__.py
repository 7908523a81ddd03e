"""Sick programs, each with a public failure of Kafka's users, and a healthy twin of each: the same program without its mistake.

A program is a function of the fixture's `Kafka`, the bootstrap servers that its clients use, and whether it is sick. What it does wrong is in its
docstring; `finding` is the code of the finding that has to come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fletchlog.kafka import Kafka

    Run = Callable[[Kafka, str, bool], None]


@dataclass(frozen=True)
class Program:
    """A program of the zoo."""

    name: str
    finding: str
    run: Run
    is_slow: bool
    config: dict[str, Any] = field(default_factory=dict)
    nodes: int = 1


ZOO: list[Program] = []


def program(finding: str, *, slow: bool = False, nodes: int = 1, **config: Any) -> Callable[[Run], Run]:
    """Puts a program into the zoo; `config` are broker properties, with `_` for `.`."""

    def add(run: Run) -> Run:
        broker = {name.replace("_", "."): value for name, value in config.items()}
        ZOO.append(Program(getattr(run, "__name__", finding), finding, run, slow, broker, nodes))
        return run

    return add
