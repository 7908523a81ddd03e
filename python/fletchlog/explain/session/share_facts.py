"""What ShareFetch and ShareAcknowledge say, as rows: what is acknowledged, what is acquired, and the share session between them (KIP-932)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from fletchlog.explain.session.columns import NONE, column, np, optional
from fletchlog.explain.session.rows import Acknowledged, Acquired, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fletchlog.explain.session.columns import Array, Lines, Tables
    from fletchlog.explain.session.rows import Lane

_Row = TypeVar("_Row")
FINAL_EPOCH = -1
"""Ends a share session. Kafka: `ShareRequestMetadata#FINAL_EPOCH`."""


def shares_of(lines: Lines, tables: Tables, error: Callable[[int], str | None]) -> Iterator[Shared]:
    """The rows of these requests, in the order of arrival; `error` has the name of an error code."""
    names, lanes = lines.named, lines.named.lanes
    place, group, member, epoch, wanted, *asked, renews, lock, code, acknowledged, acquired, size = map(column, tables["shares"].values())
    lane, first, last, types, refused = map(column, tables["acknowledged"].values())
    kinds = [tuple(kind) for kind in tables["types"]]
    done = list(
        map(
            Acknowledged._make,
            zip(_lanes(lanes, lane), first.tolist(), last.tolist(), (kinds[kind] for kind in types.tolist()), map(error, refused.tolist()), strict=True),
        )
    )
    lane, *offsets = map(column, tables["acquired"].values())
    handed = list(map(Acquired._make, zip(_lanes(lanes, lane), *(values.tolist() for values in offsets), strict=True)))
    wants = {number: tuple(lanes[lane] for lane in names.wanted[number]) for number in np.unique(wanted).tolist() if number != NONE}
    columns = (
        lines.number[place].tolist(), lines.client[place].tolist(), lines.connection[place].tolist(), lines.arrived_us[place].tolist(),
        optional(lines.answered_us[place]), names.text(lines.outcome[place]), (lines.apis[api] for api in lines.api[place].tolist()),
        names.text(group), names.text(member), epoch.tolist(), (wants.get(number, ()) for number in wanted.tolist()),
        *(values.tolist() for values in asked), map(bool, renews.tolist()), lock.tolist(), map(error, code.tolist()), _parts(done, acknowledged),
        _parts(handed, acquired), size.tolist(),
    )  # fmt: skip
    return map(Shared._make, zip(*columns, strict=True))


def _lanes(lanes: list[Lane], numbers: Array) -> Iterator[Lane]:
    return (lanes[number] for number in numbers.tolist())


def _parts(rows: list[_Row], first: Array) -> Iterator[list[_Row]]:
    """The rows from each first one to the next."""
    return (rows[begin:end] for begin, end in pairwise([*first.tolist(), len(rows)]))
