"""csv as other programs leave it: blank lines, other ends of lines, marks of the byte order, quotes."""

import json

import pytest

import fletchlog as fl

HEAD = "topic,partition,offset,timestamp,key,value,headers"
LAST = 2**63 - 1
ROWS = [
    ("t,0,0,1970-01-01T00:00:00.005000+00:00,k,x,", (b"k", b"x", None)),
    ('t,0,1,5,,"",', (None, b"", None)),
    ('t,0,2,5,"",,"[{""key"": """", ""value"": null}]"', (b"", None, [{"key": "", "value": None}])),
    ('t,0,3,5,"a,b","l1\nl2\r\nl3\r",', (b"a,b", b"l1\nl2\r\nl3\r", None)),
    ('t,0,4,5,"""","\n\n",', (b'"', b"\n\n", None)),
    (f't,2147483647,{LAST},5, ,"{LAST}",', (b" ", str(LAST).encode(), None)),
    ("t,0,6,5,a\u2028b\x0b\x0c\x1c\x85,\ufeff,", ("a\u2028b\x0b\x0c\x1c\x85".encode(), "\ufeff".encode(), None)),
]


def rows(path):
    with fl.Broker(path, read_only=True) as broker:
        return [(row["key"], row["value"], row["headers"] or None) for row in broker.scan("t", include_headers=True).to_pyarrow().to_pylist()]


FORMS = {
    "as it is written": lambda lines: "\n".join(lines) + "\n",
    "no final newline": "\n".join,
    "a blank line at the end": lambda lines: "\n".join(lines) + "\n\n",
    "blank lines between": "\n\n\n".join,
    "blank lines of blanks": "\n  \n \n".join,
    "blank lines before": lambda lines: "\n\n" + "\n".join(lines),
    "Windows": lambda lines: "\r\n".join(lines) + "\r\n\r\n",
    "old Macs": lambda lines: "\r".join(lines) + "\r",
    "byte order mark": lambda lines: "\ufeff" + "\n".join(lines),
    "mark, Windows, blank lines": lambda lines: "\ufeff\r\n" + "\r\n\r\n".join(lines),
    "quoted names": lambda lines: "\n".join([",".join(f'"{name}"' for name in HEAD.split(",")), *lines[1:]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_records_come_back_whatever_is_between_them(cli, data, form):
    text = FORMS[form]([HEAD, *(row for row, _ in ROWS)])
    cli("topics", "create", data, "t", "-c", "retention.ms=-1")
    said = cli("produce", data, "t", "-f", "csv", stdin=text.encode()).err
    assert f"produced {len(ROWS)} records as `fletchlog consume` wrote them" in said
    assert rows(data) == [record for _, record in ROWS]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "quoted names"])
@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_rows_come_once_whatever_is_between_them(cli, data, form, mark):
    text = FORMS[form]([mark.join(["a", "b"]), mark.join(["1", '""']), mark.join(["", '"x\n\ny"']), mark.join(['"""2"""', " "])])
    cli("produce", data, "t", "-f", "csv", "--delimiter", mark, "--partitions", 1, stdin=text.encode())
    assert [json.loads(value) for _, value, _ in rows(data)] == [{"a": "1", "b": ""}, {"a": "", "b": "x\n\ny"}, {"a": '"2"', "b": " "}]


def test_blank_lines_of_a_single_field_are_no_rows(cli, data):
    cli("produce", data, "t", "-f", "csv", "--partitions", 1, stdin='\n\na\n1\n\n""\n \n2\n\n')
    assert [json.loads(value)["a"] for _, value, _ in rows(data)] == ["1", "", " ", "2"]


@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n", "\ufeff", HEAD, HEAD + "\n", "\n" + HEAD + "\n\n"])
def test_a_file_without_rows_has_no_records(cli, data, text):
    assert "produced 0 records" in cli("produce", data, "t", "-f", "csv", "--partitions", 1, stdin=text.encode()).err


def test_a_file_that_consume_wrote_and_others_opened(cli, data, tmp_path):
    """A blank line that an editor leaves is no record."""
    cli("produce", data, "t", "--partitions", 1, stdin="1\n2\n3\n")
    file = tmp_path / "a.csv"
    cli("consume", data, "t", "-f", "csv", "-o", file)
    file.write_text(file.read_text() + "\n")
    cli("produce", tmp_path / "copy", "t", file, "--partitions", 1)
    assert [value for _, value, _ in rows(tmp_path / "copy")] == [b"1", b"2", b"3"]


def test_an_error_names_the_line_not_the_row(cli, data):
    text = f'{HEAD}\n\nt,0,0,5,,"a\nb",\n\nt,0,1,soon,,,\n'
    said = cli("produce", data, "t", "-f", "csv", "--partitions", 1, stdin=text, code=1).err
    assert "standard input, line 6: 'soon' is no timestamp" in said
    assert said.endswith("; 1 record before it is in t\n")
