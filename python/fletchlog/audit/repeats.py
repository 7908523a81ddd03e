"""Finds equal records by two 64-bit numbers of each. numpy only, as `order`."""

from __future__ import annotations

from typing import Any

import numpy as np

# odd, with about as many ones as zeros; records are split by the topmost bits of a product with them
MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def ranked(one: Any, two: Any) -> tuple[Any, Any]:
    """How to sort two columns of numbers by both, and which rows of the result are the first with their pair."""
    order = np.argsort(one)
    first = one[order]
    alike = first[1:] == first[:-1]
    # among equal first numbers the second one has to be looked at: rare, or a log that repeats itself a lot
    if alike.any():
        order = np.lexsort((two, one))
        first, second = one[order], two[order]
        alike = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    return order, np.concatenate([np.ones(min(len(one), 1), bool), ~alike])


def distinct(one: Any, two: Any) -> tuple[Any, Any]:
    """The different pairs of two columns."""
    order, first = ranked(one, two)
    kept = order[first]
    return one[kept], two[kept]


def repeated(one: Any, two: Any) -> int:
    """How many rows repeat the pair of another one."""
    in_order = np.sort(one)
    again = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    if not len(again):
        return 0
    # sorting one column alone is several times as fast; the second one matters only where the first repeats
    place = np.minimum(np.searchsorted(again, one), len(again) - 1)
    mine = again[place] == one
    return int(np.count_nonzero(mine)) - len(distinct(one[mine], two[mine])[0])


def lanes(one: Any, two: Any, bits: int) -> list[tuple[int, Any]]:
    """Splits rows into at most 2^bits parts, equal pairs into the same: number and rows of each part that is not empty."""
    lane = (((one ^ (two * MIX[1])) * MIX[0]) >> np.uint64(64 - bits)).astype(np.uint16)
    order = np.argsort(lane, kind="stable")
    edges = np.flatnonzero(np.diff(lane[order])) + 1
    return [(int(lane[mine[0]]), mine) for mine in np.split(order, edges) if len(mine)]
