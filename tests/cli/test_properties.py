"""Files of properties (`--command-config`, FLETCHLOG_STORAGE_CONFIG) mean what they mean to Java, which is the judge."""

import random
import shutil
import subprocess

import pytest

import fletchlog as fl
from fletchlog.cli.common import CommandError, configured, properties_of_file, storage_options

JUDGE = r"""
import java.io.*;
import java.util.*;

public class Judge {
    static String hex(String text) {
        StringBuilder made = new StringBuilder();
        for (char c : text.toCharArray()) made.append(String.format("%04x", (int) c));
        return made.toString();
    }

    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Properties found = new Properties();
            try (InputStream file = new FileInputStream(name)) {
                found.load(file);
                for (String key : found.stringPropertyNames()) System.out.println(hex(key) + " " + hex(found.getProperty(key)));
            } catch (IllegalArgumentException malformed) {
                System.out.println("malformed");
            }
            System.out.println("end");
        }
    }
}
"""
PARTS = ["a", "b", "=", ":", " ", "\t", "\f", "\\\\", "\\=", "\\:", "\\ ", "\\#", "\\t", "\\n", "\\u00e9", "\\uD83D\\ude00", "\\u12", "\\q", "\xe9", "#", "!",
         "\n", "\r", "\r\n", "x\\\n  y", "x\\\r\n\ty", "\n#c\n", "\n!c\\\n"]  # fmt: skip


def units(text):
    data = text.encode("utf-16-be")
    return "".join(f"{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))


def ours(path):
    try:
        found = properties_of_file(str(path))
    except CommandError as error:
        return ["malformed"] if "hexadecimal" in str(error) else None if "no name" in str(error) else [str(error)]
    return sorted(f"{units(name)} {units(value)}" for name, value in found.items())


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is the judge")
def test_files_of_properties_are_read_as_java_reads_them(tmp_path):
    random_parts = random.Random(7)
    (tmp_path / "Judge.java").write_text(JUDGE)
    files = []
    for number in range(600):
        files.append(tmp_path / f"{number}.properties")
        text = "".join(random_parts.choices(PARTS, k=random_parts.randint(1, 20)))
        files[-1].write_bytes(text.encode("latin-1"))
    done = subprocess.run(["java", tmp_path / "Judge.java", *files], capture_output=True, text=True, check=True)
    answers = [answer.splitlines() for answer in done.stdout.split("end\n")]
    compared = 0
    for file, answer in zip(files, answers, strict=False):
        found = ours(file)
        # a property without a name is one of Java's, and a mistake
        if found is None:
            assert any(line.startswith(" ") for line in answer) or answer == ["malformed"], file.read_bytes()
        else:
            assert found == sorted(answer), file.read_bytes()
            compared += answer not in ([], ["malformed"])
    assert compared > 200


def test_utf8_and_marks_are_read_as_well(tmp_path):
    file = tmp_path / "p"
    for data in ("n\xe4me=\u20ac\r\n".encode(), "\ufeffn\xe4me : \u20ac".encode(), "# c\rn\xe4me \\u20ac".encode(), "n\xe4me=\\u20ac".encode("latin-1")):
        file.write_bytes(data)
        assert properties_of_file(str(file)) == {"n\xe4me": "\u20ac"}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a=b\\\n  c\n\n# \nd=\\u12g4\n", "line 5: `\\u` without four hexadecimal digits"),
        (b"a=b\n=c\n", "line 2: there is no name before the separator"),
        (b"a=b\r\rc=\\ud800\n", "line 3: half of a surrogate pair"),
        ("a=b\n".encode("utf-16"), "save it as UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, data, text):
    file = tmp_path / "p"
    file.write_bytes(data)
    with pytest.raises(CommandError) as failed:
        properties_of_file(str(file))
    assert text in str(failed.value)
    with pytest.raises(CommandError, match="none cannot be read: No such file"):
        properties_of_file(str(tmp_path / "none"))


@pytest.mark.parametrize("password", ["p\\w", "p w", "p:w=w#w!", "\xe9\u20ac", '"', "p\\\\w\\", "\\u0041"])
def test_a_password_is_that_of_java(cli, tmp_path, password):
    """In a file as Properties.store writes it, with `:` as separator and lines that continue."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{}";'
    written = password.replace("\\", "\\\\").replace('"', '\\"')
    escaped = "".join(f"\\u{ord(c):04X}" if ord(c) > 126 else "\\" + c if c in "\\=:#!" else c for c in jaas.format(written))
    file = tmp_path / "client.properties"
    file.write_text(
        f"#Sat Nov 28 05:48:34 UTC 2026\nsecurity.protocol: SASL_PLAINTEXT \nsasl.mechanism PLAIN\nsasl.jaas.config={escaped[:40]}\\\n   {escaped[40:]}\n"
    )
    server = {"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}
    server["plain.sasl.jaas.config"] = f'PlainLoginModule required user_alice="{written}";'
    with fl.Broker.in_memory() as broker, broker.listen(config=server) as kafka:
        broker.create_topic("there")
        assert [row["topic"] for row in cli("topics", "list", f"kafka://{kafka.bootstrap}", "--json", "--command-config", file).json] == ["there"]


def test_options_of_stores_have_the_same_rules(tmp_path, monkeypatch):
    file = tmp_path / "store.properties"
    file.write_text("access_key: k\\u00e9y \nsecret_key=a\\\\b\\\n  c\n! no option\n")
    monkeypatch.setenv("FLETCHLOG_STORAGE_CONFIG", str(file))
    assert storage_options() == {"access_key": "k\xe9y", "secret_key": "a\\bc"}
    assert configured(file, ["secret_key=typed"]) == {"access_key": "k\xe9y ", "secret_key": "typed"}
