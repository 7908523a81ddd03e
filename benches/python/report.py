"""How benchmarks print what they found."""

from __future__ import annotations

import json


def report(rates: dict[str, float], ratios: list[tuple[str, float, float]]) -> None:
    """Rates in million records a second, ratios (name, value, target), and the rates as one line of JSON."""
    for name, value in rates.items():
        print(f"  {name:32} {value:6.2f} million records/s")
    for name, value, target in ratios:
        print(f"  {name:32} {value:6.2f}  (target {target:g}: {'met' if value >= target else 'MISSED'})")
    print(json.dumps(rates))
