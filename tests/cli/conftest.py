import contextlib
import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios

import pytest

from tests.support.command_line import invoke


class Result:
    def __init__(self, result):
        self.code = result.exit_code
        self.out = result.stdout
        self.err = result.stderr
        self.exception = result.exception

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cli():
    """Runs `fletchlog` with these words and expects this code, or one of a set; a traceback is a failure of the test."""

    def run(*words, stdin=None, code=0):
        result = Result(invoke([str(word) for word in words], input=stdin))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.code in (code if isinstance(code, set) else {code}), (words, result.code, result.out, result.err)
        if result.code == 1:
            assert "fletchlog: " in result.err
            assert "Traceback" not in result.err
        return result

    return run


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


FLETCHLOG = "import sys; from fletchlog.cli import main; sys.exit(main())"


class Shell:
    """Runs `fletchlog` as a process of its own."""

    def __init__(self, folder):
        self.folder = folder

    def words(self, *words):
        return [sys.executable, "-c", FLETCHLOG, *(os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words)]

    def start(self, *words, **options):
        return subprocess.Popen(self.words(*words), cwd=self.folder, **options)

    def run(self, *words, **options):
        return self.check(subprocess.run(self.words(*words), cwd=self.folder, capture_output=True, check=False, **options))

    def bash(self, script, **options):
        """A script of bash in which `fletchlog` is the command."""
        start = f'set -o pipefail; fletchlog() {{ {shlex.quote(sys.executable)} -c {shlex.quote(FLETCHLOG)} "$@"; }}\n'
        return self.check(subprocess.run(["bash", "-c", start + script], cwd=self.folder, capture_output=True, check=False, **options))

    def terminal(self, *words, columns=100):
        """What a terminal gets, standard error included, and the exit code."""
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        # they would count more than the terminal
        without_size = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        process = self.start(*words, stdin=side, stdout=side, stderr=side, env=without_size | {"TERM": "xterm"})
        os.close(side)
        said = b""
        with os.fdopen(main, "rb", buffering=0) as file, contextlib.suppress(OSError):  # EIO: all ends of the terminal are closed
            while chunk := file.read(65536):
                said += chunk
        assert b"Traceback" not in said, said.decode()
        return said, process.wait()

    def check(self, done):
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        assert b"Exception ignored" not in done.stderr, done.stderr.decode()
        return done


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)
