"""Records that are there against those that must be."""

from __future__ import annotations


def difference(found: list[int], expected: list[int]) -> str:
    """Where two lists part."""
    at = next((i for i, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other), min(len(found), len(expected)))
    return f"{len(found)} of {len(expected)} records, from place {at} on {found[at : at + 5]} instead of {expected[at : at + 5]}"
