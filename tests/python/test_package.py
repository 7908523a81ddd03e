"""The package's surface: names, documentation, exceptions, what importing does."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import WrapperDescriptorType

import pytest

import fletchlog as fl
import fletchlog.types
from fletchlog import _core, errors


def test_every_exported_name_exists_and_is_documented() -> None:
    assert len(fl.__all__) == len(set(fl.__all__))
    for name in fl.__all__:
        value = getattr(fl, name)
        assert name.startswith("__") or value.__doc__, name


def test_the_front_is_small_and_checkers_see_what_python_sees() -> None:
    assert len(fl.__all__) <= 19, "what is not used every day belongs in a module"
    source = ast.parse(Path(fl.__file__).read_text())
    checked = next(node for node in source.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name for name, home in seen.items() if home == "fletchlog"} == fl._MODULES
    assert {name: home.rpartition(".")[2] for name, home in seen.items() if home != "fletchlog"} == fl._HOMES
    for name in fl._MODULES:
        module = getattr(fl, name)
        assert module.__name__ == f"fletchlog.{name}"
        assert module.__doc__, name
        assert {*module.__all__} <= {*dir(module)}, name


def test_help_shows_what_the_stub_says() -> None:
    stub = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef) and hasattr(_core, node.name)}
    functions = [node for node in stub.body if isinstance(node, ast.FunctionDef)]
    documented: list[tuple[object, ast.ClassDef | ast.FunctionDef]] = [(_core, node) for node in (*classes.values(), *functions)]
    documented += [(getattr(_core, name), node) for name, owner in classes.items() for node in owner.body if isinstance(node, ast.FunctionDef)]
    for owner, node in documented:
        text, value = ast.get_docstring(node), getattr(owner, node.name)
        # Python gives methods like __next__ its own text
        if text is not None and not isinstance(value, WrapperDescriptorType):
            assert inspect.getdoc(value) == text, node.name
    for name in classes:
        owner = getattr(_core, name)
        home = importlib.import_module(owner.__module__)
        assert getattr(home, name) is owner, f"{name} is not in {owner.__module__}"
        assert all(inspect.getdoc(getattr(owner, method)) for method in vars(owner) if not method.startswith("_")), name


def test_importing_starts_nothing_and_needs_nothing() -> None:
    script = """
import sys, threading
import fletchlog
print(threading.active_count(), [m for m in ("pyarrow", "pandas", "polars", "pyspark", "numpy") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "1 []"


def test_what_is_written_in_python_is_imported_when_it_is_asked_for() -> None:
    script = """
import sys
import fletchlog as fl
print(sorted(m for m in sys.modules if m.startswith("fletchlog")), [m for m in ("logging", "typing", "inspect", "json") if m in sys.modules])
print(set(fl.__all__) <= set(dir(fl)), fl.TopicPartition("t", 1), fl.explain.replay.__module__, fl.types.Record is fl.Record)
from fletchlog import *
print(set(fl.__all__) <= set(globals()))
try:
    fl.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "['fletchlog', 'fletchlog._core'] []",
        "True t-1 fletchlog.explain._replay True",
        "True",
        "module 'fletchlog' has no attribute 'nothing'",
    ]


def test_a_module_of_the_package_is_not_looked_for_in_others() -> None:
    script = """
import sys
from fletchlog import ledger
print([m for m in ("fletchlog.testing", "fletchlog.transfer") if m in sys.modules])
import fletchlog._copying
print("fletchlog.transfer" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_the_engines_error_table_and_the_exception_classes_agree() -> None:
    table = _core.error_classes()
    classes = {name: getattr(errors, name) for name in errors.__all__}
    raised = {name for *_, name in table}
    assert raised <= set(classes)
    parents, of_python = {"KafkaError", "AuthenticationError", "GroupError"}, {"RecordDeserializationError", "ReplayRefusedError", "TableConflictError"}
    assert set(classes) - raised <= parents | of_python, "classes that nothing raises"
    for cls in classes.values():
        assert issubclass(cls, errors.KafkaError)
    for name, of_kafka in {
        "KafkaTimeoutError": (7, "REQUEST_TIMED_OUT", True),
        "BufferExhaustedError": (7, "REQUEST_TIMED_OUT", True),
        "StorageError": (56, "KAFKA_STORAGE_ERROR", False),
        "ConcurrentAccessError": (-1, "UNKNOWN_SERVER_ERROR", True),
        "OutOfOrderSequenceError": (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    }.items():
        assert (classes[name].code, classes[name].name, classes[name].retriable) == of_kafka


def test_every_class_of_the_drawn_tree_exists_with_the_drawn_parent() -> None:
    stack: list[tuple[int, str]] = []
    drawn = set()
    for line in (errors.__doc__ or "").splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if name not in errors.__all__:
            continue
        depth = line.index(name)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if stack:
            assert stack[-1][1] in [base.__name__ for base in getattr(errors, name).__bases__], name
        stack.append((depth, name))
        drawn.add(name)
    assert drawn == set(errors.__all__)


def test_exceptions_can_be_pickled_with_their_code() -> None:
    with fl.Broker.in_memory() as broker, pytest.raises(fl.errors.UnknownTopicOrPartitionError) as caught:
        broker.describe_topic("nothing")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (str(again), again.code, again.name, again.retriable) == (str(caught.value), 3, "UNKNOWN_TOPIC_OR_PARTITION", True)


def value_classes() -> list[type]:
    """Every named tuple of the package."""
    found = [value for module in (fl.types, fl.admin, fl.files) for value in (getattr(module, name) for name in module.__all__)]
    return [value for value in found if isinstance(value, type) and issubclass(value, tuple)]


def test_values_are_tuples_that_compare_and_pickle() -> None:
    tp = fl.TopicPartition("t", 1)
    assert tp == ("t", 1)
    assert str(tp) == "t-1"
    assert {tp: 1}[fl.TopicPartition("t", 1)] == 1
    for value_class in value_classes():
        value = value_class(*range(len(value_class._fields)))
        assert value == tuple(range(len(value_class._fields)))
        assert pickle.loads(pickle.dumps(value)) == value


def test_every_public_type_is_named() -> None:
    for module in (fl.types, fl.admin, fl.files):
        public = {name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__}
        assert public <= set(module.__all__)


def test_the_property_table_is_complete_and_documented() -> None:
    table = fl.admin.config_table()
    assert {row.scope for row in table} == {"broker", "topic", "producer", "consumer", "legacy-consumer"}
    known = {(row.scope, row.name): row for row in table}
    assert known["consumer", "max.poll.records"].default == "500"
    assert known["producer", "batch.size"].default == "16384"
    assert known["topic", "message.timestamp.type"].default == "CreateTime"
    for row in table:
        assert row.doc.endswith("."), row
        assert row.type, row


def test_the_version_is_the_distributions() -> None:
    import importlib.metadata

    assert fl.__version__ == importlib.metadata.version("fletchlog")


def test_no_module_is_hidden_behind_a_function_of_its_name() -> None:
    packages = [fl]
    walked = {"fletchlog", "fletchlog._core"}
    while packages:
        package = packages.pop()
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            walked.add(found.name)
            # the last two need what no test environment has
            if found.name in {"fletchlog.__main__", "fletchlog.scans._daft", "fletchlog.scans._ray"}:
                continue
            module = importlib.import_module(found.name)
            assert getattr(package, found.name.rpartition(".")[2]) is module, f"{found.name} is hidden"
            if found.ispkg:
                packages.append(module)
    root = Path(fl.__file__).parent
    files = {path.relative_to(root.parent).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".") for path in root.rglob("*.py")}
    assert files <= walked
