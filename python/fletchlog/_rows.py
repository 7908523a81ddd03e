"""What `Producer.send_arrow` says of a row that it does not take."""

from __future__ import annotations

import re

_REFUSED = re.compile(r"row (\d+): (.*?)(?:; the \d+ rows before it are queued)?", re.DOTALL)


def refused(error: Exception) -> tuple[int, str] | None:
    """The number of the row and the reason; None: the error is not that of a row."""
    found = _REFUSED.fullmatch(str(error))
    return None if found is None else (int(found[1]), found[2])
