"""`fletchlog dump`, `verify`, `explain` and `config`: looking without touching."""

import json
import subprocess
import sys

import pytest

import fletchlog as fl


@pytest.fixture
def orders(cli, data):
    cli("topics", "create", data, "orders", "-p", 2)
    cli("produce", data, "orders", "--key", ":", "-c", "enable.idempotence=true", stdin="".join(f"k{i}:{i}\n" for i in range(2000)))
    return data


def segment(data):
    return data / "orders-0" / "00000000000000000000.log"


def test_dump_shows_batches_and_records_of_a_segment(cli, orders):
    batches = cli("dump", segment(orders), "--json", "-n", 0).lines
    assert [b["base_offset"] for b in batches[1:]] == [b["last_offset"] + 1 for b in batches[:-1]]
    assert all(b["crc_valid"] and b["producer_id"] is not None for b in batches)
    records = cli("dump", segment(orders), "--records", "--json", "-n", 0).lines
    assert len(records) == sum(b["records"] for b in batches)
    assert {(r["topic"], r["partition"]) for r in records} == {("orders", 0)}
    assert all(r["key"] == f"k{r['value']}" for r in records)
    assert "sound" in cli("dump", segment(orders)).out
    assert len(cli("dump", segment(orders), "-r", "--json", "-n", 3).lines) == 3


def test_verify_finds_a_flipped_bit_and_says_where(cli, orders):
    assert cli("verify", orders, "--json").json["sound"]
    assert "2 of 2 partitions are sound" in cli("verify", orders).out
    content = bytearray(segment(orders).read_bytes())
    content[200] ^= 1
    segment(orders).write_bytes(content)
    result = cli("verify", orders, "--json", code=1)
    assert "orders-0" in result.err
    damaged = {p["partition"]: p["damaged"] for p in json.loads(result.out)["partitions"]}
    assert damaged["orders-0"]
    assert not damaged["orders-1"]
    assert "byte 0" in cli("verify", orders, code=1).out
    assert "damaged" in cli("dump", segment(orders), code=1).err


def test_verify_never_writes(cli, orders):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in orders.rglob("*") if path.is_file()}
    cli("verify", orders)
    cli("dump", segment(orders))
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in orders.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["dump", "{data}/orders-0/nothing.log"], "nothing.log"),
        (["dump", "{data}/orders-0/00000000000000000000.index"], "name a .log file"),
        (["verify", "{data}/nowhere"], "nowhere"),
        (["explain", "{data}", "-t", "order"], "order"),
        (["explain", "{data}", "-t", " , "], "name topics with --topics; {data} has orders"),
        (["explain", "{data}", "-t", "orders", "--polls", "0"], "polls is 0"),
        (["explain"], "name a broker's directory"),
        (["explain", "{data}"], "name topics with --topics; {data} has orders"),
        (["explain", "nowhere.fltrace"], "nowhere.fltrace: does not exist"),
        (["explain", "{data}", "-t", "orders", "--compare", "fair"], "kip-387"),
        (["explain", "{data}/orders-0/00000000000000000000.log"], "no saved trace"),
        (["explain", "{data}", "-t", "orders", "-c", "fletchlog.consumer.version=1.0"], "fletchlog.consumer.version"),
        (["config", "--scope", "client"], "broker, topic"),
        (["config", "no such words"], "no property matches"),
    ],
)
def test_mistakes_are_one_sentence(cli, orders, words, text):
    assert text.format(data=orders) in cli(*[word.format(data=orders) for word in words], code=1).err


def test_config_prints_every_property_with_default_and_doc(cli):
    rows = cli("config", "--json").json
    assert {row["scope"] for row in rows} == {"broker", "topic", "producer", "consumer", "legacy-consumer"}
    assert rows == [key._asdict() for key in fl.admin.config_table()]
    assert all(row["doc"] for row in rows)
    found = cli("config", "max", "poll", "--scope", "consumer").out
    assert "max.poll.records" in found
    assert "linger.ms" not in found


def test_explain_prints_the_order_of_requests_and_every_poll(cli, shell, orders):
    options = ["-t", "orders", "-c", "max.poll.records=300", "--polls", 10]
    result = cli("explain", orders, *options, "--full")
    assert "bucket" in result.out
    assert "poll 1:" in result.out
    assert "takes 300 records of orders-" in result.out
    brief = cli("explain", orders, *options)
    assert "asked" in brief.out
    assert len(brief.out) < len(result.out)
    # advice is for people at a terminal
    assert brief.err == ""
    assert b"--full tells every decision" in shell.terminal("explain", orders, *options)[0]
    both = cli("explain", orders, *options, "--text", "--compare", "kip-387").out
    assert both.startswith(brief.out)
    assert "they part at poll" in both


ROWS = ("2.6", "3.0", "3.1", "3.6", "3.9", "4.1", "4.4")


def test_all_releases_are_compared_on_the_terminal(cli, orders):
    printed = cli("explain", orders, "-t", "orders", "--polls", 3, "--compare", "all").out
    for release in ROWS[1:]:
        assert f"\nJava client {release}" in printed
    rows = [line.split("  ")[0] for line in printed.split("How fair is it?")[1].splitlines() if line.startswith(("Java client", "KIP-387"))]
    # what decides the same is one row
    assert rows == ["Java client 2.6, 3.0, 3.1, 3.6, 3.9: the same", "Java client 4.1, 4.4: the same", "KIP-387"]


def test_a_run_of_any_length_has_a_short_story(cli, orders):
    printed = cli("explain", orders, "-t", "orders", "-c", "max.poll.records=5", "--polls", 10_000).out
    assert len(printed.splitlines()) < 50
    assert "and so on" not in printed
    assert "400 polls returned 2,000 records" in printed


def test_explain_writes_every_form_of_the_same_run(cli, orders, tmp_path):
    names = {form: tmp_path / f"order.{form}" for form in ("html", "png", "svg", "json")}
    options = [word for form, path in names.items() for word in (f"--{form}", path)]
    result = cli("explain", orders, "-t", "orders", "-c", "max.poll.records=300", "--polls", 10, "--compare", "kip-387", *options)
    assert result.out == ""
    assert names["png"].read_bytes().startswith(b"\x89PNG")
    data = json.loads(names["json"].read_text())
    assert [run["title"] for run in data["runs"]] == ["Java client 2.6 (as 2.4 - 2.6)", "KIP-387"]
    taken = sum(step[4] for steps in data["runs"][0]["polls"] for step in steps if step[0] == "take")
    assert taken == 2000
    for form in ("html", "svg"):
        assert "KIP-387" in names[form].read_text()
        assert f"order.{form}" in result.err


def test_a_page_without_a_comparison_holds_every_row_of_the_decision_table(cli, orders, tmp_path):
    cli("explain", orders, "-t", "orders", "--polls", 3, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    titles = [run["title"] for run in json.loads((tmp_path / "a.json").read_text())["runs"]]
    assert [release for release in ROWS if any(release in title for title in titles)] == list(ROWS)
    assert titles[-1] == "KIP-387"


def test_a_card_compares_with_kip_387_unless_another_order_is_given(cli, orders, tmp_path):
    cli("explain", orders, "-t", "orders", "--polls", 30, "--card", tmp_path / "a.svg")
    assert "with KIP-387 up to" in (tmp_path / "a.svg").read_text()
    cli("explain", orders, "-t", "orders", "--polls", 30, "--compare", "4.3", "--card", tmp_path / "b.svg")
    assert "Java client 4.3" in (tmp_path / "b.svg").read_text()
    assert 'height="630"' in (tmp_path / "b.svg").read_text()
    cli("explain", orders, "-t", "orders", "--save", tmp_path / "a.arrow")
    assert "--card shows two orders" in cli("explain", tmp_path / "a.arrow", "--card", tmp_path / "c.svg", code=1).err


def test_explain_says_at_which_decision_two_saved_runs_part(cli, orders, tmp_path):
    a, b, c = (tmp_path / f"{name}.arrow" for name in "abc")
    for path, most in ((a, 300), (b, 300), (c, 200)):
        cli("explain", orders, "-t", "orders", "-c", f"max.poll.records={most}", "--polls", 10, "--save", path)
    assert "decides the same, to the end" in cli("explain", "--compare", a, b).out
    said = cli("explain", "--compare", a, c).out
    assert "they part at poll 1, decision" in said
    assert "takes 300 records" in said
    assert "takes 200 records" in said
    assert "How fair is it?" in said
    assert ": a.arrow" in said
    assert ": c.arrow" in said
    assert "poll 1:" in cli("explain", a, "--full").out
    assert "fixed" in cli("explain", a, "-t", "orders", code=1).err


def test_verify_reports_offsets_segments_producers_and_what_recovery_would_cut(cli, orders):
    partitions = {p["partition"]: p for p in cli("verify", orders, "--json").json["partitions"]}
    one = partitions["orders-0"]
    assert (one["log_start_offset"], one["log_end_offset"]) == (0, one["records"])
    (part,) = one["segment_reports"]
    assert (part["base_offset"], part["next_offset"], part["size"]) == (0, one["log_end_offset"], segment(orders).stat().st_size)
    (state,) = one["producer_states"]
    assert (state["last_sequence"], state["last_offset"]) == (one["records"] - 1, one["log_end_offset"] - 1)
    assert one["would_cut"] == []
    torn = segment(orders)
    torn.write_bytes(torn.read_bytes()[:-3])
    partitions = {p["partition"]: p for p in json.loads(cli("verify", orders, "--json", code=1).out)["partitions"]}
    (cut,) = partitions["orders-0"]["would_cut"]
    assert cut["path"] == str(torn)
    assert cut["size"] == torn.stat().st_size
    assert 0 <= cut["from"] < cut["size"]
    assert "incomplete" in cut["reason"]
    assert "would cut it at byte" in cli("verify", orders, code=1).out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["explain", "-t", "orders", "--html"],
        ["explain", "-t", "orders", "--svg"],
        ["audit", "--html"],
        ["consume", "orders", "-f", "json", "-o"],
        ["consume", "orders", "-f", "jsonl", "-o"],
    ],
)
def test_a_file_that_does_not_fit_the_disk_is_not_there_and_is_named(orders, tmp_path, words):
    # a file may have a kilobyte in this process; a full disk fails in the same way, but needs rights to make one
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); from fletchlog.cli import main; sys.exit(main())"
    for before in (None, "old"):
        out = tmp_path / "out"
        if before is not None:
            out.write_text(before)
        words_ = [words[0], orders, *words[1:], out]
        done = subprocess.run([sys.executable, "-c", program, *map(str, words_)], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"fletchlog: {out}: File too large")
        if words[0] != "consume":
            assert (out.read_text() if out.exists() else None) == before
        elif "jsonl" in words:
            assert [json.loads(line)["offset"] for line in out.read_text().splitlines()]
        assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_dash_is_standard_output(cli, orders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ["explain", orders, "-t", "orders", "--polls", 2, "--compare", "kip-387"]
    there = cli(*run, "--json", "e.json")
    assert "wrote e.json" in there.err
    piped = cli(*run, "--json", "-")
    assert (piped.out, piped.err) == ((tmp_path / "e.json").read_text(), "")
    assert cli(*run, "--html", "-").out.startswith("<!doctype html>")
    assert "<svg" in cli(*run, "--svg", "-").out
    page = cli("audit", orders, "--html", "-")
    assert page.out.startswith("<!doctype html>")
    assert "wrote" not in page.err
    assert "--save writes a file" in cli(*run, "--save", "-", code=1).err
    assert not (tmp_path / "-").exists()


def test_what_is_no_name_of_a_topic_is_not_advised(cli, orders):
    assert "topics create" not in cli("consume", orders, "order*", code=1).err
    assert "topics create" in cli("consume", orders, "more", code=1).err
