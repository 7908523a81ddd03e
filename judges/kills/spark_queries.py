"""Kills the processes of real Spark queries that write into one directory: Python workers, executors, the driver.

A driver (`judges.kills.spark_driver`) runs two streams (the sink, and `foreachBatch` with txnAppId) and two writers of frames (with and without txnAppId) at
the same time. Its workers and executors die at random moments, at last it dies itself; the next one goes on with the same checkpoints, another number of cores
and partitions, in one process or on two executors, some with speculation. After each driver the directory is read and compared with what must be
there: every row once, in the order of its frame, of each batch and write all or nothing. The last driver of a directory ends by itself; then everything is
there, and nothing is staged.

`python -m judges.kills.spark_queries` prints one line for each violation, then `query-kills: N, V violations (..)`. QUERY_KILLS (default 100), TIME_LIMIT (seconds) and
SEED are taken from the environment; PLANTED=yes commits without the ledger.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pyspark
from settings import count, seconds

import fletchlog as fl
from judges.kills import shim
from judges.kills.difference import difference
from judges.kills.processes import environment, processes_of
from judges.kills.spark_driver import BROKEN, PARTITIONS, VERSION_ROWS, WRITE_ROWS, Plan, lines
from judges.kills.spark_watched import marks, tasks

NAME = "query-kills"
ROWS = 60_000
# Drivers that are killed before the one that ends by itself, and kills of other processes in the life of one.
DRIVERS = 4
KILLS_PER_DRIVER = 6
# Nothing takes nearly as long.
START_SECONDS, END_SECONDS = 180, 300
# How long a kill waits for a process that does what it is to die in.
MOMENT_SECONDS = 5
# So many sessions the last driver may need.
SESSIONS = 5
WORKER, EXECUTOR, DRIVER = b"pyspark.daemon", b"CoarseGrainedExecutorBackend", b"SparkSubmit"
LOCAL = {"spark.sql.streaming.minBatchesToRetain": "100000", "spark.task.maxFailures": "50", "spark.stage.maxConsecutiveAttempts": "50"}
CLUSTER = {
    "spark.executor.memory": "768m",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "50ms",
}


# what must be there


def numbered(folder: Path) -> list[int]:
    """Batches that have a file in a log of a checkpoint."""
    return sorted(int(file.name) for file in folder.glob("*") if file.name.isdecimal())


def batch_ends(checkpoint: Path) -> list[list[int]]:
    """The end of each planned batch, by partition."""
    found = []
    for batch in numbered(checkpoint / "offsets"):
        offsets = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])["in"]
        found.append([int(offsets.get(str(partition), 0)) for partition in range(PARTITIONS)])
    return found


def planned(checkpoint: Path, *, last: bool) -> list[list[list[int]]]:
    """The ends of the batches that Spark has noted as done; and those with the one that may be done. The `last` driver has noted all."""
    ends = batch_ends(checkpoint)
    done = len(numbered(checkpoint / "commits"))
    if last and (done != len(ends) or sum(ends[-1]) != ROWS):
        return []
    return [ends[:done], ends[: done + 1]]


def rows_a(ends: list[list[int]]) -> list[list[str]]:
    """The sink of a stream: each partition of the source in one of its own."""
    end = ends[-1] if ends else [0] * PARTITIONS
    return [[str(number) for number in range(partition, end[partition] * PARTITIONS, PARTITIONS)] for partition in range(PARTITIONS)]


def rows_b(ends: list[list[int]]) -> list[list[str]]:
    """`foreachBatch`: the batches one after the other, each in the order of its numbers."""
    found, before = [], [0] * PARTITIONS
    for end in ends:
        found += sorted(offset * PARTITIONS + partition for partition in range(PARTITIONS) for offset in range(before[partition], end[partition]))
        before = end
    return [[str(number) for number in found]]


def rows_c(versions: int) -> list[list[str]]:
    """Versions of an application."""
    return [[str(number) for number in range(partition, versions * VERSION_ROWS, PARTITIONS)] for partition in range(PARTITIONS)]


class Judge:
    """Compares what readers of committed records see with what must be there; one complaint a topic."""

    def __init__(self, root: Path, topics: str, *, last: bool) -> None:
        self.root, self.last, self.place = root, last, root / "log"
        self.wrong: list[str] = []
        with opened(root / "log") as broker:
            self.found = {topic: read(broker, topic) for topic in topics}
        for topic in self.found:
            getattr(self, f"look_{topic}")()
        self.look_staging()

    def compare(self, topic: str, allowed: list[list[list[str]]]) -> None:
        """All partitions together are one of these."""
        if self.found[topic] in allowed:
            return
        if not allowed:
            self.wrong.append(f"{topic}: the query ended before its end")
        for partition, (found, expected) in enumerate(zip(self.found[topic], allowed[-1] if allowed else [], strict=False)):
            if found != expected:
                again = sum(times - 1 for times in Counter(found).values())
                self.wrong.append(f"{topic}-{partition}: {again} repeated, {difference([*map(int, found)], [*map(int, expected)])}")

    def look_a(self) -> None:
        """The sink of a stream."""
        self.compare("a", [rows_a(ends) for ends in planned(self.root / "checkpoint-a", last=self.last)])

    def look_b(self) -> None:
        """`foreachBatch`."""
        self.compare("b", [rows_b(ends) for ends in planned(self.root / "checkpoint-b", last=self.last)])

    def look_c(self) -> None:
        """Versions: those that were noted as done, and perhaps the next one."""
        done = 1 + max(map(int, lines(self.root / "c.done")), default=-1)
        self.compare("c", [rows_c(versions) for versions in ((done,) if self.last else (done, done + 1))])

    def look_d(self) -> None:
        """Writes of frames: each as a whole and in a row, what was noted as done not missing."""
        (rows,) = self.found["d"]
        whole = Counter[str]()
        for at in range(0, len(rows), WRITE_ROWS):
            name = rows[at].split()[0]
            whole[name] += 1
            if rows[at : at + WRITE_ROWS] != [f"{name} {number}" for number in range(WRITE_ROWS)]:
                self.wrong.append(f"d: the write {name} at {at} of {len(rows)} rows is torn or out of order")
                return
        self.wrong += [f"d: the write {name} is there {times} times" for name, times in whole.items() if times > 1]
        self.wrong += [f"d: the write {name} is lost" for name in lines(self.root / "d.done") if name not in whole]
        self.wrong += [f"d: the write {name} was never begun" for name in whole.keys() - set(lines(self.root / "d.begun"))]

    def look_staging(self) -> None:
        """A batch of the stream that Spark noted as done has taken all of the stream that was older; the last driver leaves nothing at all."""
        left = {path.name: path.stat().st_mtime for path in Path(f"{self.root / 'log'}.staging").glob("*")}
        checkpoint = self.root / "checkpoint-a"
        done = numbered(checkpoint / "commits")
        planned_at = (checkpoint / "offsets" / str(done[-1])).stat().st_mtime if done else 0.0
        of_query = [name for name, changed in left.items() if not name.startswith("fletchlog-write-") and changed < planned_at]
        if wrong := list(left) if self.last else of_query:
            self.wrong.append(f"staging: {wrong} were left behind")


def opened(log: Path) -> fl.Broker:
    """Open for writing, so that what a kill left is decided. What commits still may have it for a moment."""
    end = time.monotonic() + 60
    while True:
        try:
            return fl.Broker(log, create=True)
        except fl.errors.DirectoryLockedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def read(broker: fl.Broker, topic: str) -> list[list[str]]:
    """Committed values by partition."""
    found = []
    for partition in range(len(broker.describe_topic(topic).partitions)):
        table = broker.scan(topic, partition=partition, isolation_level="read_committed").to_pyarrow()
        found.append([value.decode() for value in table["value"].to_pylist()])
    return found


# what is killed


class Standalone:
    """Spark's own cluster: a master and two workers. Their hosts have two names, because Spark runs no second attempt of a task on the host of the first."""

    def __init__(self, home: Path, scratch: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        package = "org.apache.spark.deploy"
        commands = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
        for host in ("127.0.0.2", "127.0.0.3"):
            place = ["--host", host, "--webui-port", "0", "--work-dir", str(scratch / "work")]
            commands.append([f"{package}.worker.Worker", *place, "--cores", "1", "--memory", "1g", self.url])
        settings = {**environment(), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(scratch)}
        settings["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [
            subprocess.Popen([home / "bin" / "spark-class", *command], env=settings, cwd=scratch, start_new_session=True, **silent) for command in commands
        ]

    def those(self) -> dict[int, bytes]:
        """Executors and their workers."""
        found = {pid: command for process in self.processes for pid, command in processes_of(process.pid).items()}
        return {pid: command for pid, command in found.items() if EXECUTOR in command or WORKER in command}

    def end(self) -> None:
        """Kills everything."""
        for process in self.processes:
            kill(processes_of(process.pid))
            process.wait()


class Running:
    """A driver's processes, and those of its executors."""

    def __init__(self, plan: Plan, home: Path, standalone: Standalone | None = None) -> None:
        self.plan, self.root, self.standalone = plan, Path(plan.root), standalone
        settings = {**environment(), "SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": plan.root, "PYTHONWARNINGS": "ignore"}
        self.output = self.root / "output"
        with self.output.open("wb") as output:
            command = [sys.executable, "-m", "judges.kills.spark_driver", plan.text()]
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.process = subprocess.Popen(command, start_new_session=True, cwd=self.root, env=settings, **streams)

    def wait(self, done: Callable[[], object], limit: float, what: str) -> None:
        """Until it is so, or Spark broke the session.

        Raises:
            RuntimeError: It takes too long, or the driver has ended before.
        """
        end = time.monotonic() + limit
        while not done() and self.process.poll() != BROKEN:
            if time.monotonic() > end or self.process.poll() is not None:
                how = "hangs" if self.process.poll() is None else f"ended with {self.process.returncode}"
                raise RuntimeError(f"the driver {how} instead of {what}: {self.said()}")
            time.sleep(0.02)

    def said(self) -> str:
        """The end of its output, and the last failures."""
        end = [*self.output.read_text(errors="replace").splitlines()[-15:], *lines(self.root / "failures")[-4:]]
        return "\n    ".join(line[:1500] for line in end)

    def those(self, *kinds: bytes) -> list[int]:
        """Processes with this in their command line."""
        return [pid for pid, command in self.processes().items() if any(kind in command for kind in kinds)]

    def processes(self) -> dict[int, bytes]:
        """All of them."""
        return processes_of(self.process.pid) | (self.standalone.those() if self.standalone is not None else {})

    def doing(self, what: str) -> list[int]:
        """Processes that commit, that write as a task or have written."""
        there = set(self.those(WORKER))
        return [int(mark.name) for mark in marks(self.plan.place, what).glob("*") if int(mark.name) in there]

    def committing(self) -> list[int]:
        """Processes that commit: tasks, where they do it by themselves."""
        return self.doing("task" if self.plan.cluster else "commit")

    def end(self) -> None:
        """Kills what is left."""
        end = time.monotonic() + 30
        while left := self.processes():
            kill(left)
            self.process.poll()
            if time.monotonic() > end:
                raise RuntimeError(f"processes do not die: {left}")
            time.sleep(0.02)
        self.process.wait()


def kill(pids: Iterable[int]) -> int:
    """How many of these there were."""
    done = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        done += 1
    return done


class Campaign:
    """One directory after the other, until so many kills are done."""

    name = NAME
    # beside executors and drivers
    kinds = ("task", "worker", "commit")
    # what finds the planted defect: it dies when the rows are there and Spark does not know it
    planted_kind = "commit"

    def __init__(self, wanted: int, deadline: float, seed: int, scratch: Path) -> None:
        self.wanted, self.deadline, self.seed, self.scratch = wanted, deadline, seed, scratch
        self.rng = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.directories = self.drivers = self.rows = self.attempts = self.broken = self.violations = 0
        self.home = spark_home(scratch)
        self.standalone = Standalone(self.home, scratch)

    @property
    def over(self) -> bool:
        """Enough kills, or no time."""
        return self.killed.total() >= self.wanted or time.monotonic() >= self.deadline

    def plan(self, root: Path, *, last: bool) -> Plan:
        """Another parallelism each time."""
        rng = self.rng
        cluster = rng.random() < 0.4
        config = {**LOCAL, **(CLUSTER if cluster else {}), "spark.sql.shuffle.partitions": str(rng.randint(1, 3))}
        return Plan(
            root=str(root),
            master=rng.choice([self.standalone.url, "local-cluster[2,1,1024]"]) if cluster else f"local[{rng.randint(1, 2)},50]",
            config=config,
            seed=rng.getrandbits(32),
            min_partitions=rng.randint(1, 6),
            max_offsets=ROWS if last else rng.choice([100, 300, 600]),
            inline=rng.choice([0, 0, 2000, 4 << 20]),
            last=last,
            planted=shim.is_planted(),
            # speculation needs a core that is idle
            topics=rng.choice(["abcd", "ab", "a"]) if cluster and not last else "abcd",
        )

    def pause(self, running: Running) -> None:
        """Some time; half of the kills are in a commit, or just before or after one."""
        end = time.monotonic() + 10 ** self.rng.uniform(-1, 0.4)
        if self.rng.random() < 0.5:
            end = time.monotonic() + 20
            while time.monotonic() < end and not running.committing():
                time.sleep(0.005)
            end = time.monotonic() + self.rng.uniform(0, 0.4)
        time.sleep(max(0.0, end - time.monotonic()))

    def kill_one(self, running: Running) -> None:
        """A task that writes, any worker or its daemon, one that commits, or an executor."""
        kind = self.rng.choice([*self.kinds, "executor" if running.those(EXECUTOR) else "task"])
        if shim.is_planted():
            kind = self.planted_kind
        find = {"worker": lambda: running.those(WORKER), "executor": lambda: running.those(EXECUTOR)}
        end = time.monotonic() + MOMENT_SECONDS
        while not (pids := find[kind]() if kind in find else running.doing(kind)) and time.monotonic() < end:
            time.sleep(0.005)
        if pids:
            self.killed[kind] += kill([self.rng.choice(pids)])

    def kill_driver(self, running: Running) -> None:
        """Spark's JVM, the program, or everything at once; what is left over may end by itself for a moment."""
        kind = self.rng.choice(["JVM", "program", "all"])
        pids = {"JVM": running.those(DRIVER), "program": [running.process.pid], "all": list(processes_of(running.process.pid))}[kind]
        self.killed["driver"] += bool(kill(pids))
        if kind != "all":
            time.sleep(self.rng.uniform(0, 3))
        running.end()

    def run_killed(self, root: Path) -> None:
        """A driver from its start to its death."""
        (root / "started").unlink(missing_ok=True)
        running = Running(self.plan(root, last=False), self.home, self.standalone)
        try:
            running.wait((root / "started").exists, START_SECONDS, "starting")
            running.wait(running.committing, START_SECONDS, "committing something")
            for _ in range(self.rng.randint(1, KILLS_PER_DRIVER * 2 - 1)):
                self.pause(running)
                if self.killed.total() + 1 >= self.wanted:
                    break
                self.kill_one(running)
            self.pause(running)
            self.kill_driver(running)
        finally:
            running.end()
            self.broken += running.process.returncode == BROKEN

    def run_last(self, root: Path) -> None:
        """A driver that ends by itself; as an operator does, with another session where Spark broke one."""
        for _ in range(SESSIONS):
            running = Running(self.plan(root, last=True), self.home, self.standalone)
            try:
                running.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"the last driver hangs: {running.said()}") from None
            finally:
                running.end()
            if running.process.returncode != BROKEN:
                break
            self.broken += 1
        if running.process.returncode:
            raise RuntimeError(f"the last driver failed: {running.said()}")

    def one_directory(self, root: Path) -> list[str]:
        """Complaints about it."""
        self.fill(root)
        self.directories += 1
        for driver in range(DRIVERS + 1):
            last = driver == DRIVERS or self.over
            self.drivers += 1
            try:
                self.run_last(root) if last else self.run_killed(root)
                judge = self.judge(root, last=last)
            except (RuntimeError, fl.KafkaError) as error:
                return [str(error)]
            if judge.wrong or last:
                self.attempts += sum(not line.endswith(" 0") for line in lines(tasks(judge.place)))
                self.rows += sum(len(rows) for partitions in judge.found.values() for rows in partitions)
                return judge.wrong
        raise AssertionError

    def fill(self, root: Path) -> None:
        """What the drivers of a directory read and write."""
        fill(root)

    def judge(self, root: Path, *, last: bool) -> Judge:
        """What a driver left."""
        return Judge(root, "abcd", last=last)

    def run(self) -> str:
        """Directory after directory; what was done, in a line."""
        try:
            self.run_directories()
        finally:
            self.standalone.end()
        kinds = ", ".join(f"{number} of a {kind}" for kind, number in self.killed.items())
        counts = f"{self.drivers} drivers, {self.broken} sessions broken by Spark, {self.attempts} attempts after the first"
        counts += f", {self.directories} directories, {self.rows} rows, seed {self.seed}"
        return f"{self.name}: {self.killed.total()}, {self.violations} violations ({kinds}; {counts})"

    def run_directories(self) -> None:
        """Prints a line for each violation. One that is planted has to be found once."""
        while not self.over and not (shim.is_planted() and self.violations):
            with tempfile.TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as root:
                wrong = self.one_directory(Path(root))
                self.violations += bool(wrong)
                for line in wrong:
                    print(f"kill {self.killed.total()} of seed {self.seed}: {line}", flush=True)


def spark_home(scratch: Path) -> Path:
    """A home of Spark's own, because it puts the folders of executors into it."""
    home = scratch / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


def fill(root: Path) -> None:
    """The source's directory, and an empty one to write to."""
    with fl.Broker(root / "in", create=True) as broker, fl.Producer(broker, {"linger.ms": 50}) as producer:
        broker.create_topic("in", partitions=PARTITIONS, config={"retention.ms": "-1"})
        for number in range(ROWS):
            producer.send("in", value=str(number).encode(), partition=number % PARTITIONS)
    with fl.Broker(root / "log", create=True, config={"offsets.topic.num.partitions": 1}) as broker:
        for topic, partitions in {"a": PARTITIONS, "b": 1, "c": PARTITIONS, "d": 1, "end": 1}.items():
            broker.create_topic(topic, partitions=partitions)


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "QUERY_KILLS", 100), seconds(NAME, 3600), count(NAME, "SEED", 0)
    with tempfile.TemporaryDirectory(prefix="fletchlog-", ignore_cleanup_errors=True) as scratch:
        campaign = Campaign(wanted, time.monotonic() + limit, seed, Path(scratch))
        print(campaign.run())
    return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
