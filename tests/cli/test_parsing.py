"""What the words of a command line are to a command: options anywhere, values of any look, and a sentence for what cannot be read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fletchlog._place import Place
from fletchlog.cli.app import COMMANDS, commands, found, loaded
from fletchlog.cli.arguments import parameters, read, split

COMMANDS_WITH_OPTIONS = [(f"fletchlog {name}", command) for name, command in commands()]


def values(text, *more):
    prog, command, words = found("fletchlog", [*text.split(), *more])
    return {name: value for name, value in read(prog, command, words).items() if value not in (None, False)}


def test_options_may_be_anywhere_and_take_the_next_word_whatever_it_is():
    for words in (
        "consume d t u -n 3 -p 0 --partition 1 --from 2h",
        "consume -n3 --partition=0 d -p1 t --from=2h u",
        "consume --max=3 -p 0 -p 1 --from 2h -- d t u",
    ):
        given = values(words)
        assert (str(given.pop("directory")), given) == ("d", {"topics": ["t", "u"], "most": 3, "partition": [0, 1], "start": "2h"})
    assert values("produce d t --key -- --delimiter - -f=csv file.csv", "--value=-x=y")["key"] == "--"
    assert {name: values("produce d t --key -x --value= -c a=-b")[name] for name in ("key", "value", "config")} == {
        "key": "-x",
        "value": "",
        "config": ["a=-b"],
    }
    assert str(values("consume", "--", "-d", "-t")["directory"]) == "-d"
    assert values("groups reset d g -t a --shift-by -10")["shift_by"] == -10


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS_WITH_OPTIONS])
def test_an_option_with_one_value_is_given_once(name, capsys):
    """Every option of every command: it adds up, or a second one is refused."""
    function = dict(COMMANDS_WITH_OPTIONS)[name]
    for parameter, kind, several in parameters(function).values():
        if not parameter.flags or kind == "bool":
            continue
        value = "1" if kind == "int" else "a"
        words = [word for flag in (parameter.flags[0], parameter.flags[-1]) for word in (flag, value)]
        if several or parameter.adds_up:
            given = split(function, words)[0]
            assert [text for _, text in given] == [value, value]
            continue
        with pytest.raises(SystemExit):
            read(name, function, words)
        assert f"{parameter.name} is given twice; `{name} --help` says what there is" in capsys.readouterr().err


def test_topics_add_up_and_opposites_do_not_go_together(capsys):
    for command in ("copy a b", "export a b", "audit a", "explain a", "assign -m 3"):
        assert values(f"{command} -t x -t y,z --topics=u")["topics"] == "x,y,z,u"
    assert values("topics list a --json --json")["as_json"] is True
    prog, command, words = found("fletchlog", ["produce", "d", "t", "--as-records", "--as-rows"])
    with pytest.raises(SystemExit):
        read(prog, command, words)
    assert "--as-records and --as-rows do not go together" in capsys.readouterr().err


def test_a_property_is_given_once(cli, data):
    assert "retention.ms is given twice" in cli("topics", "create", data, "t", "-c", "retention.ms=1", "-c", "retention.ms=2", code=1).err


def test_a_flag_may_have_an_opposite():
    assert values("produce d t --as-records")["as_records"] is True
    prog, command, words = found("fletchlog", ["produce", "d", "t", "--as-rows"])
    assert read(prog, command, words)["as_records"] is False
    assert read(prog, command, words[:-1])["as_records"] is None


def test_places_keep_their_slashes_and_files_are_paths():
    given = values("copy kafka://h:1 file:///tmp/d --source-command-config file:///tmp/f")
    assert (repr(given["source"]), repr(given["destination"])) == (repr(Place("kafka://h:1")), repr(Place("/tmp/d")))
    assert given["source_command_config"] == Path("/tmp/f")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nope", "there is no command nope"),
        ("cosume d t", "did you mean consume?"),
        ("topics lst", "did you mean list?"),
        ("topics create d", "TOPIC is missing"),
        ("topics create d t u", "there is no use for u"),
        ("consume d t -n x", "--max wants a whole number, got x"),
        ("consume d t -n", "-n wants a value"),
        ("consume d t --bogus", "there is no option --bogus"),
        ("consume d t --follo", "there is no option --follo; did you mean --follow"),
        ("consume d t --from-beginning", "--from says where else"),
        ("serve --port 9092", "--listen takes HOST:PORT"),
        ("groups kafka://h:1", "groups is followed by one of list, describe"),
        ("consume d t --follow=yes", "--follow takes no value"),
        ("assign -m 3", "--topics is missing"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_code_2(cli, words, said):
    result = cli(*words.split(), code=2)
    assert said in result.err
    assert result.err.count("\n") == 1
    assert "--help` says what there is" in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [("retention kafka://h:1", "is a cluster"), ("clean s3://b t", "object stores are read-only"), ("dump kafka://h:1", "is a file of this machine")],
)
def test_a_place_of_another_kind_is_refused(cli, words, said):
    assert said in cli(*words.split(), code=1).err


def test_help_names_every_command_and_every_option(cli):
    listed = cli("--help").out
    for name in ("serve", "delete-records", "topics", "users"):
        assert f"\n  {name} " in listed
    assert "add-partitions" in cli("topics", "--help").out
    shown = " ".join(cli("consume", "-h").out.split())
    for part in (
        "fletchlog consume [OPTIONS] DIR TOPIC...",
        "--from earliest|latest|TIME",
        "default: by the file's name, else table, with --follow jsonl",
        "--follow",
        "%t topic",
    ):
        assert part in shown
    assert cli(code=2).out == listed


@pytest.mark.parametrize("words", ["serve", "consume", "groups reset"])
def test_examples_are_indented_lines_one_below_the_other(cli, words):
    shown = cli(*words.split(), "--help").out.splitlines()
    assert not any(line.startswith(f"fletchlog {words}") for line in shown)
    examples = [place for place, line in enumerate(shown) if line.startswith(f"  fletchlog {words}")]
    assert len(examples) > 1
    assert examples == list(range(examples[0], examples[0] + len(examples)))


def test_the_help_says_of_each_command_what_its_own_help_begins_with():
    for name, text in COMMANDS.items():
        command = loaded(name)
        documented = command if callable(command) else sys.modules[f"fletchlog.cli.{name}"]
        assert documented.__doc__.splitlines()[0] == text


def test_the_help_and_serve_load_no_other_command_and_no_other_package():
    for words in (["--help"], ["--version"], ["serve", "--help"]):
        done = subprocess.run([sys.executable, "-X", "importtime", "-m", "fletchlog", *words], capture_output=True, text=True, check=True)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert not loaded & {"rich", "pyarrow", "numpy", "typing", "inspect", "argparse", "fletchlog.cli.consume", "fletchlog.cli.completion"}, words


def test_words_are_completed(shell):
    def completed(*words):
        return shell.run("--complete", *words).stdout.decode().split()

    shell.bash("fletchlog topics create data orders; fletchlog topics create data other; echo 1 | fletchlog produce data orders")
    shell.run("consume", "data", "orders", "--group", "g")
    assert completed("to") == ["topics"]
    assert completed("topics", "add") == ["add-partitions"]
    assert completed("consume", "data", "--fo") == ["--format", "--follow"]
    assert (
        completed("consume", "data", "o") == completed("consume", "data", "orders", "o") == completed("consume", "-n", "3", "data", "o") == ["orders", "other"]
    )
    assert completed("groups", "reset", "data", "g", "--topic", "ot") == ["other"]
    assert completed("groups", "lag", "data", "") == ["g"]
    for words in (
        ["consume", ""],
        ["consume", "nowhere", ""],
        ["consume", "data", "-n", ""],
        ["topics", "list", "data", ""],
        ["nope", ""],
        ["consume", "kafka://", ""],
    ):
        assert completed(*words) == []


@pytest.mark.parametrize(("name", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish/completions/fletchlog.fish")])
def test_completion_is_installed_once(shell, name, file):
    environment = os.environ | {"SHELL": f"/bin/{name}", "HOME": str(shell.folder)}
    for _ in range(2):
        assert shell.run("--install-completion", env=environment).returncode == 0
    script = shell.run("--show-completion", env=environment).stdout
    assert (shell.folder / file).read_bytes() == script
    assert shell.run("--show-completion", env=environment | {"SHELL": "/bin/odd"}).returncode == 1


def test_bash_completes_with_what_is_installed(shell):
    shell.bash("fletchlog topics create data orders; fletchlog topics create data other")
    script = shell.run("--show-completion", env=os.environ | {"SHELL": "/bin/bash"}).stdout.decode()
    ask = f'{script}\nCOMP_WORDS=(fletchlog consume data o); COMP_CWORD=3; _fletchlog; printf "%s " "${{COMPREPLY[@]}}"'
    assert shell.bash(ask).stdout == b"orders other "


def test_without_the_extra_only_serve_works_and_others_say_what_to_install(shell):
    shell.run("topics", "create", "d", "t")
    words = [sys.executable, "-c", "import sys; sys.modules['rich'] = sys.modules['pyarrow'] = None; from fletchlog.cli import main; sys.exit(main())"]
    for rest in (["topics", "list", "d"], ["consume", "d", "t", "-f", "jsonl"]):
        assert b"pip install 'fletchlog[" in shell.check(subprocess.run([*words, *rest], cwd=shell.folder, capture_output=True, check=False)).stderr
    ready = [*words, "serve", "--memory", "--listen", "127.0.0.1:0", "--print-address", "--with-parent"]
    assert "bootstrap" in json.loads(subprocess.run(ready, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
