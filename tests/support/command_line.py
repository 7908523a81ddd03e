"""Runs the command `fletchlog` in this process."""

import contextlib
import io
import os
from unittest import mock

from fletchlog.cli.app import run


class Result:
    """What a command has said, and how it ended: an exception that is no SystemExit is in `exception`."""

    def __init__(self, code, out, err, exception):
        self.exit_code, self.stdout_bytes, self.stderr, self.exception = code, out, err.decode(errors="replace"), exception

    @property
    def stdout(self):
        return self.stdout_bytes.decode(errors="replace")

    @property
    def output(self):
        return self.stdout + self.stderr


def invoke(words, input="", env=None):  # noqa: A002 - as subprocess calls it
    """Runs it with these words; `input` is its standard input, text or bytes."""
    data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input or b""
    streams = [io.TextIOWrapper(io.BytesIO(content), "utf-8", "backslashreplace") for content in (data, b"", b"")]
    code, exception = 0, None
    with (
        mock.patch("sys.stdin", streams[0]),
        contextlib.redirect_stdout(streams[1]),
        contextlib.redirect_stderr(streams[2]),
        mock.patch.dict(os.environ, env or {}),
    ):
        try:
            run([os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words])
        except SystemExit as ended:
            code = ended.code or 0
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            code, exception = 1, error
    for stream in streams[1:]:
        stream.flush()
    return Result(code, streams[1].buffer.getvalue(), streams[2].buffer.getvalue(), exception)
