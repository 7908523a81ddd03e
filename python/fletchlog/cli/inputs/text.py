"""Lines of text in any encoding."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING, BinaryIO

from fletchlog.cli.common import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.cli.inputs import Input

BOM = "\ufeff"
_UNDECODED = re.compile("[\udc80-\udcff]")


def decoded(file: BinaryIO, source: Input, newline: str) -> Iterator[str]:
    """Lines of text with their ends; `newline` as for `open`."""
    encoding = source.encoding or "utf-8"
    try:
        text = io.TextIOWrapper(file, encoding, "surrogateescape", newline)
    except LookupError:
        raise CommandError(f"--encoding {encoding}: there is no such encoding; there are utf-8, utf-16, latin-1, cp1252 and many more") from None
    number = 0
    try:
        for number, line in enumerate(text, 1):
            if (bad := _UNDECODED.search(line)) is not None:
                byte = ord(bad[0]) - 0xDC00
                guess = "utf-16" if number == 1 and byte in b"\xfe\xff" and not bad.start() else "latin-1 or cp1252"
                raise CommandError(
                    f"{source.where}, line {number}, column {bad.start() + 1}: byte 0x{byte:02x} is no {encoding}; "
                    f"name the encoding with --encoding, for example {guess}"
                )
            # a byte order mark is no part of the text
            yield line.removeprefix(BOM) if number == 1 else line
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise CommandError(f"{source.where}, after line {number}: not {encoding} ({reason}); name the encoding with --encoding") from None
    finally:
        # the file is closed by the caller that opened it, perhaps before this generator ends
        with contextlib.suppress(ValueError):
            text.detach()
