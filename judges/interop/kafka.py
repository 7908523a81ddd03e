"""Kafka's jars from Maven Central, our Java programs compiled against them, and JVMs that run them.

Everything is kept under `.build/interop`; a second run fetches and compiles nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_SOURCES = Path(__file__).resolve().parent / "java"
CACHE = Path(__file__).resolve().parents[2] / ".build" / "interop"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"

SERVERS = ["3.9.1", "4.3.1", "4.4.0"]
NEWEST = SERVERS[-1]
CLIENTS = ["2.6.3", "3.7.2", "3.9.1", "4.3.1", "4.4.0"]
# whose recordings are those of another release, as all of them were found to be equal
RECORDED_AS = {"4.4.0": "4.3.1"}
LOGGING = ("slf4j-simple", "1.7.36")
# Spark's own source for Kafka: the newest that Maven Central has, which the newer Spark of constraints.txt runs
SPARK_SOURCE = ("spark-sql-kafka-0-10_2.13", "4.2.0")
# what that needs and PySpark's own jars have not
SPARK_SOURCE_PARTS = [f"{SPARK_SOURCE[0]}-{SPARK_SOURCE[1]}", "spark-token-provider-kafka-0-10_2.13-4.2.0", "kafka-clients-3.9.2", "commons-pool2-2.13.1"]
# Spark's own `from_avro`, of the same release
SPARK_AVRO = ("spark-avro_2.13", "4.2.0")
# a NameNode and DataNodes in one JVM
HADOOP = ("hadoop-client-minicluster", "3.4.2")
GROUPS = {
    "junit-platform-console-standalone": "org.junit.platform",
    LOGGING[0]: "org.slf4j",
    SPARK_SOURCE[0]: "org.apache.spark",
    SPARK_AVRO[0]: "org.apache.spark",
    HADOOP[0]: "org.apache.hadoop",
}
# small and quick to start: hundreds of short runs, not one long one
JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def require_tools() -> None:
    """Fails loudly when Java's compiler or Maven is missing."""
    for tool, hint in [("java", "Java 17 (JDK)"), ("javac", "Java 17 (JDK, not only the JRE)"), ("mvn", "Apache Maven 3.8 or newer")]:
        if shutil.which(tool) is None:
            message = f"make test-interop needs {tool} on PATH; install {hint}, then run it again."
            raise RuntimeError(message)


def jars(artifact: str, version: str) -> Path:
    """A directory with an artifact of that version and everything it depends on."""
    target = CACHE / "jars" / f"{artifact}-{version}"
    if target.exists():
        return target
    require_tools()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        group = GROUPS.get(artifact, "org.apache.kafka")
        arguments = [f"-Dgroup={group}", f"-Dartifact={artifact}", f"-Drelease={version}", f"-DoutputDirectory={scratch}/jars"]
        command = ["mvn", "-q", "-B", "-f", str(JAVA_SOURCES / "pom.xml"), f"{DEPENDENCY_PLUGIN}:copy-dependencies", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = f"Maven could not fetch {artifact} {version}:\n{done.stdout}{done.stderr}"
            raise RuntimeError(message)
        (Path(scratch) / "jars").rename(target)
    return target


def spark_avro() -> str:
    """Spark's own Avro as a jar: what it needs is among PySpark's own."""
    return str(jars(*SPARK_AVRO) / f"{SPARK_AVRO[0]}-{SPARK_AVRO[1]}.jar")


def spark_source() -> str:
    """`spark.jars` for Spark's kafka source."""
    directory = jars(*SPARK_SOURCE)
    return ",".join(str(directory / f"{part}.jar") for part in SPARK_SOURCE_PARTS)


def classpath(folder: str, artifacts: list[tuple[str, str]]) -> str:
    """Compiles `java/FOLDER` against the artifacts; the class path to run it with."""
    libraries = ":".join(f"{jars(artifact, version)}/*" for artifact, version in [*artifacts, LOGGING])
    sources = sorted((JAVA_SOURCES / folder).glob("*.java"))
    digest = hashlib.sha256(libraries.encode() + b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = CACHE / "classes" / f"{folder}-{digest}"
    if not target.exists():
        require_tools()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            command = ["javac", "-nowarn", "-cp", libraries, "-d", f"{scratch}/classes", *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                message = f"javac failed in {folder}:\n{done.stdout}{done.stderr}"
                raise RuntimeError(message)
            (Path(scratch) / "classes").rename(target)
    return f"{target}:{libraries}"


def server(version: str) -> list[tuple[str, str]]:
    """The artifacts of a broker and its tools."""
    tools = [("kafka-tools", version)] if version.startswith("4.") else []  # before 4.x the tools used here are in the core
    return [("kafka_2.13", version), *tools]


def run(folder: str, artifacts: list[tuple[str, str]], main: str, *arguments: str, stdin: str = "", timeout: float = 500) -> str:
    """Runs a program to its end and returns what it printed."""
    command = [*JVM, "-cp", classpath(folder, artifacts), main, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        message = f"{main} {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        raise RuntimeError(message)
    return done.stdout
