"""Handles and processes: fork, spawn, forkserver, a dead parent, the end of the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import fletchlog as fl

# A child that hangs is killed after this many seconds: none of these takes one on an idle machine.
PATIENCE_S = 60


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own; a hang is an error."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def checked(script: str, *arguments: str | Path) -> str:
    """What a script prints; it must end well and say nothing on stderr."""
    done = run(script, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def work(path: Path) -> int:
    """What a worker process does: writes to a log of its own and reads it back."""
    with fl.Broker(path, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        for _ in range(100):
            producer.send("t", value=b"v")
        producer.flush()
        return broker.scan("t").to_pyarrow().num_rows


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_start_method_use_logs_of_their_own(tmp_path: Path, method: str) -> None:
    # The parent has handles open and its sender thread running while they start
    with fl.Broker(tmp_path / "parent", create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        producer.send("t", value=b"before").result(10)
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            rows = pool.map_async(work, [tmp_path / f"child-{i}" for i in range(6)]).get(PATIENCE_S)
        assert rows == [100] * 6
        assert producer.send("t", value=b"after").result(10).offset == 1


FORK_UNDER_LOAD = """
import faulthandler, os, sys, threading, time
import fletchlog as fl
path = sys.argv[1]
DEADLINE = 40
broker = fl.Broker(path, create=True)
broker.create_topic("t")
producer = fl.Producer(broker, {"linger.ms": 0})
# A child must not find the lock of an import that a thread of the parent had begun: Python's own trap
broker.scan("t").to_pyarrow()
stop, errors, sent = threading.Event(), [], []
def guarded(work):
    try:
        while not stop.is_set():
            work()
    except BaseException as error:
        errors.append(error)
def send():
    sent.append(producer.send("t", value=b"v").result(10).offset)
def read():
    broker.scan("t").to_pyarrow()
def poll(consumer):
    consumer.poll(timeout_ms=5)
def consumer():
    consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest"})
    consumer.assign([("t", 0)])
    return consumer
polled = consumer()
threads = [threading.Thread(target=guarded, args=(work,)) for work in (send, send, read, lambda: poll(polled))]
for thread in threads:
    thread.start()
def in_child(i):
    faulthandler.dump_traceback_later(DEADLINE / 2, file=open(f"{path}-{i}.where", "w"))
    calls = [broker.topics, lambda: producer.send("t", value=b"x"), producer.flush, lambda: polled.poll(timeout_ms=5),
             lambda: broker.scan("t"), producer.close, polled.close, broker.close]
    for call in calls:
        try:
            call()
        except fl.errors.ForkedHandleError:
            continue
        os._exit(3)
    with fl.Broker(f"{path}-{i}", create=True) as mine, fl.Producer(mine) as writer:
        mine.create_topic("t")
        writer.send("t", value=b"own").result(10)
    with fl.Broker(path, read_only=True) as reader:
        reader.scan("t", end_offset=1).to_pyarrow()
    os._exit(0)
for i in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            in_child(i)
        finally:
            os._exit(4)
    deadline = time.monotonic() + DEADLINE
    while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            errors.append("hang: " + open(f"{path}-{i}.where").read())
            break
        time.sleep(0.005)
    else:
        if done[1] != 0:
            errors.append(done)
stop.set()
for thread in threads:
    thread.join()
producer.close(); polled.close()
rows = broker.scan("t").to_pyarrow().num_rows
broker.close()
print(errors, sorted(sent) == list(range(rows)))
"""


@pytest.mark.timeout(120)
def test_children_forked_while_threads_are_inside_the_engine_get_errors_and_never_hang() -> None:
    # In memory where that exists: each child waits for a few fsyncs, and behind gigabytes that others have written a disk may take a minute
    with tempfile.TemporaryDirectory(prefix="fletchlog-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        assert checked(FORK_UNDER_LOAD, Path(directory) / "log") == "[] True"


ORPHAN = """
import os, signal, sys, time
import fletchlog as fl
broker = fl.Broker(sys.argv[1], create=True)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
time.sleep(60)
"""


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(fl.errors.DirectoryLockedError):
            fl.Broker(path, create=True)
        parent.kill()
        parent.wait()
        # The child lives on, with everything it has inherited
        os.kill(child, 0)
        fl.Broker(path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


HELPER = """
import subprocess, sys
import fletchlog as fl
broker = fl.Broker(sys.argv[1], create=True)
helper = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(helper.pid, flush=True)
"""


def test_a_program_that_was_started_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    helper = int(checked(HELPER, tmp_path / "log"))
    try:
        fl.Broker(tmp_path / "log", create=True).close()
    finally:
        os.kill(helper, signal.SIGKILL)


# Each ends with handles open. `acknowledged` is printed and must be found in the log afterwards.
ENDINGS = {
    "end of the script": "",
    "sys.exit": "sys.exit(0)",
    "lingering records": "lingering = fl.Producer(broker, {'linger.ms': 60_000})\nlingering.send('t', value=b'never due')",
    "a poll in a daemon thread": ("threading.Thread(target=lambda: consumer.poll(timeout_ms=60_000), daemon=True).start()\ntime.sleep(0.1)"),
    "senders in daemon threads": (
        "def send():\n    while True:\n        producer.send('t', value=b'w')\n"
        "for _ in range(3): threading.Thread(target=send, daemon=True).start()\ntime.sleep(0.1)"
    ),
    "calls at exit": "atexit.register(lambda: (producer.send('t', value=b'x').result(10), consumer.poll(timeout_ms=10)))",
    "calls of a finalizer": (
        "class Late:\n    def __init__(self): self.handles = broker, producer, consumer\n"
        "    def __del__(self): self.handles[1].flush(); self.handles[2].poll(timeout_ms=10); self.handles[0].topics()\n"
        "late = Late(); late.itself = late"
    ),
    "a scan half read": "reader = broker.scan('t', batch_rows=1)\nrows = reader.read_next_batch() if hasattr(reader, 'read_next_batch') else reader",
    "records kept": "kept = consumer.poll(timeout_ms=1000)\nsys.kept = kept",
}
END = """
import atexit, sys, threading, time
import fletchlog as fl
broker = fl.Broker(sys.argv[1], create=True)
broker.create_topic("t")
producer = fl.Producer(broker)
acknowledged = [producer.send("t", value=b"v").result(10).offset for _ in range(3)]
consumer = fl.Consumer(broker, {"auto.offset.reset": "earliest"})
consumer.assign([("t", 0)])
print(len(acknowledged), flush=True)
"""


@pytest.mark.parametrize("how", ENDINGS)
def test_an_interpreter_that_ends_with_open_handles_ends_at_once_and_loses_nothing(tmp_path: Path, how: str) -> None:
    started = time.monotonic()
    assert checked(END + ENDINGS[how], tmp_path / "log") == "3"
    assert time.monotonic() - started < PATIENCE_S / 2
    with fl.Broker(tmp_path / "log", create=True) as broker:
        assert broker.scan("t").to_pyarrow().column("value").to_pylist()[:3] == [b"v"] * 3


# What a thread of the engine runs in Python when the interpreter ends. Before CPython 3.14 that aborted the process.
ENDS_DURING = """
import logging, socket, sys, threading, time
import fletchlog as fl
begun = threading.Event()
def slowly(what):
    begun.set()
    time.sleep(0.3)
    print(what)
class Handler(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            slowly("a line")
broker = fl.Broker.in_memory()
listener = broker.listen()
if sys.argv[1] == "log":
    logging.getLogger("fletchlog").addHandler(Handler())
    host, port = listener.bootstrap.rsplit(":", 1)
    for _ in range(3):
        with socket.create_connection((host, int(port))) as refused:
            refused.sendall(bytes([255]) * 8)
            assert not refused.recv(1)
else:
    listener.faults.on(api="ApiVersions", when=lambda request: slowly("a condition")).error("UNKNOWN_SERVER_ERROR")
    threading.Thread(target=lambda: fl.Cluster(f"kafka://{listener.bootstrap}").topics(), daemon=True).start()
assert begun.wait(20)
"""


@pytest.mark.parametrize(("what", "printed"), [("log", ["a line"] * 3), ("condition", ["a condition"])])
def test_the_end_of_the_interpreter_waits_for_python_on_threads_of_the_engine(what: str, printed: list[str]) -> None:
    assert checked(ENDS_DURING, what).splitlines() == printed


def test_a_terminated_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", END + "time.sleep(60)", str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "3"
    child.terminate()
    assert child.wait(PATIENCE_S) == -signal.SIGTERM
    child.stdout.close()
    with fl.Broker(tmp_path / "log", create=True) as broker:
        assert broker.scan("t").to_pyarrow().num_rows == 3


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

IMPORT = '''
import sys
sys.path[:] = {path!r}
try:
    import fletchlog
    fletchlog.Broker.in_memory().create_topic("t")
except ImportError as error:
    print(error, flush=True)
'''.format(path=sys.path)

def in_a_subinterpreter():
    try:
        other = interpreters.create("legacy")
    except TypeError:
        other = interpreters.create(isolated=False)
    failed = interpreters.run_string(other, IMPORT)
    assert failed is None, failed

if sys.argv[1] == "first":
    in_a_subinterpreter()
import fletchlog
if sys.argv[1] == "second":
    in_a_subinterpreter()
broker = fletchlog.Broker.in_memory()
broker.create_topic("t")
with fletchlog.Producer(broker) as producer:
    producer.send("t", b"v", callback=lambda metadata, error: print(metadata.offset, flush=True))
"""


@pytest.mark.parametrize("when", ["first", "second"])
def test_a_subinterpreter_cannot_import_it_and_the_process_ends(when: str) -> None:
    refusal, offset = checked(SUBINTERPRETER, when).splitlines()
    assert refusal.startswith("fletchlog works in the main interpreter only")
    assert offset == "0"
