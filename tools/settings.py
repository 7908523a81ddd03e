"""Numbers that a suite takes from the environment."""

from __future__ import annotations

import math
import os


def seconds(suite: str, default: float) -> float:
    """TIME_LIMIT."""
    return _number(suite, "TIME_LIMIT", default, float, "a number of seconds")


def count(suite: str, name: str, default: int) -> int:
    """A whole number, such as SEED."""
    return int(_number(suite, name, default, int, "a whole number"))


def _number(suite: str, name: str, default: float, kind: type[int | float], expected: str) -> float:
    """The default where the variable is not set or empty. What is no number of 0 or more ends the suite with one line."""
    text = os.environ.get(name, "").strip()
    try:
        value = kind(text) if text else default
    except ValueError:
        value = -1
    if not 0 <= value < math.inf:
        raise SystemExit(f"{suite}: {name}={text} is not {expected}")
    return value
