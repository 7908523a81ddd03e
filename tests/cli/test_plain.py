"""Options that are read without typer: the same values, or none at all."""

import contextlib
import itertools
import random

import pytest
import typer
from typer.main import get_command

from fletchlog.cli import plain
from fletchlog.cli.app import app
from fletchlog.cli.options import typer_command
from fletchlog.cli.serve import OPTIONS

TAKEN = []
alone = typer.Typer()
alone.command()(typer_command(lambda **given: TAKEN.append(given), OPTIONS))
ALONE = get_command(alone)
WORDS = [
    *itertools.chain.from_iterable(option.flags for option in OPTIONS),
    *["data", "a=b", "--config=x=y", "-c=x=y", "-cx=y", "--nodes=3", "--nodes=03", "--nodes=", "--nodes", "3", "-3", "+3", " 3", "3_0", "٣", "9" * 5000],
    *["--memory=yes", "--no-memory", "--listen=h:1", "h:1", "--list", "", "-", "--", "--help", "-h", "--auto-create=x", "--advertised=-a"],
]  # fmt: skip


def by_typer(arguments):
    """The values that typer hands over; None: it does something else."""
    TAKEN.clear()
    with contextlib.suppress(Exception):
        ALONE.main(list(arguments), standalone_mode=False)
    return TAKEN[0] if TAKEN else None


def agree(arguments):
    """Whether both read the same; true as well when typer is left to it."""
    read = plain.read(OPTIONS, arguments)
    assert read is None or read == by_typer(arguments), arguments
    return read is not None


def test_what_is_read_without_typer_is_what_typer_reads():
    random.seed(18)
    drawn = [random.choices(WORDS, k=random.randint(0, 6)) for _ in range(4000)]
    assert sum(map(agree, drawn)) > 200


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "data",
        "data --listen 127.0.0.1:0 --print-address --config a=b -c d=e --nodes 3",
        "--memory --auto-create=4 --advertised kafka:9092 --with-parent --listen=h:1",
        "--read-only data/ --config=a=b",
    ],
)
def test_ordinary_arguments_need_no_typer(arguments):
    assert agree(arguments.split())


@pytest.mark.parametrize("arguments", ["--help", "-h", "data other", "--nodes x", "--listen", "--unknown", "--memory=1", "--nodes -1", "data --"])
def test_help_and_what_is_wrong_is_left_to_typer(arguments):
    assert plain.read(OPTIONS, arguments.split()) is None


def test_every_option_is_shown_by_typer_as_the_table_has_it():
    shown = {
        parameter.name: (tuple(parameter.opts) if parameter.param_type_name == "option" else (), parameter.help)
        for parameter in get_command(app).commands["serve"].params
    }
    assert shown == {option.name: (option.flags, option.text) for option in OPTIONS}
