import json

import pytest
from typer.testing import CliRunner

from fletchlog.cli.app import app


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
    """Runs `fletchlog` with these words; a traceback is a failure of the test."""

    def run(*words, stdin=None, code=0):
        result = Result(CliRunner().invoke(app, [str(word) for word in words], input=stdin))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.code == code, (result.code, result.out, result.err)
        if code == 1:
            assert "fletchlog: " in result.err
            assert "Traceback" not in result.err
        return result

    return run


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"
