"""The fields of a JSON object with their texts."""

from __future__ import annotations

import json
import re
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_no_number)


def skip(text: str, position: int) -> int:
    """Where the blanks at this position end."""
    found = _BLANKS.match(text, position)
    return found.end() if found else position


class Fields(dict[str, Any]):
    """The fields of a JSON object, which also knows their texts: numbers have more digits there, and strings other escapes."""

    def __init__(self, fields: dict[str, Any], text: str) -> None:
        """Fields as they were read from a text."""
        super().__init__(fields)
        self._text = text

    def text_of(self, name: str) -> str:
        """The text of a field."""
        text, found = self._text, ""
        place = skip(text, 1)
        while text[place] == '"':
            field, place = DECODER.raw_decode(text, place)
            start = skip(text, skip(text, place) + 1)
            _, end = DECODER.raw_decode(text, start)
            if field == name:
                # of several the last one counts, as it does for the decoder
                found = text[start:end]
            place = skip(text, end)
            place = skip(text, place + 1) if text[place] == "," else place
        return found
