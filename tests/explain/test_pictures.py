"""Pictures and the page: what is in them is what the polls returned."""

import io
import itertools
import json
import re
import sys
import xml.etree.ElementTree as ET
from importlib.resources import files

import pytest
from matplotlib.image import imread

import fletchlog as fl
from fletchlog.explain import Story, against, distinct, fairness, page, picture, shapes, story, title
from fletchlog.explain import polls as explain
from fletchlog.explain.shapes import to_png


@pytest.fixture
def runs(small_broker):
    first = explain(small_broker, ["orders", "payments"], {"max.poll.records": 7}, polls=40, title="memory")
    return [first, *against(small_broker, ["orders", "payments"], {"max.poll.records": 7}, ["4.3", "kip-387"], polls=40)]


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="story">(.*?)</script>', text, re.DOTALL)[1])


def test_the_spans_are_the_runs(runs):
    for explained in runs:
        found = picture.spans(explained.story)
        assert sum(run[3] for run in found.ribbon) == 180
        for lane, tp in enumerate(explained.story.lanes):
            own = [run for runs in explained.polls for run in runs if (run.topic, run.partition) == tp]
            assert sum(records for _, _, records in found.runs[lane]) == sum(run.count for run in own) == 30
        edges = [edge for _, start, end, _ in found.ribbon for edge in (start, end)]
        assert edges == sorted(edges)
        # nothing is handed out that did not wait, or was fetched in that very poll
        for lane, own in found.runs.items():
            for start, end, _ in own:
                assert any(a <= start + 1e-9 and end <= b + 1e-9 for a, b in found.waits[lane])


def test_runs_of_one_partition_are_joined_across_polls():
    lanes = [fl.TopicPartition("t", 0), fl.TopicPartition("t", 1)]
    taken = [[(0, 3)], [(0, 1), (1, 2)], [(1, 3)], [(0, 3)]]
    made = Story(lanes, [1, 1], [[], *([("take", lane, 0, records - 1, records) for lane, records in poll] for poll in taken)])
    ribbon = [(lane, round(start, 3), round(end, 3), records) for lane, start, end, records in picture.spans(made).ribbon]
    assert ribbon == [(0, 0, 1.333, 4), (1, 1.333, 3, 5), (0, 3, 4, 3)]
    assert picture.run_lengths(made) == {("t", 0): [4, 3], ("t", 1): [5]}


def test_a_picture_of_the_first_polls_has_the_given_titles(runs):
    drawing = picture.draw(runs[:2], "headline", titles=["one", "other"], polls=2)
    said = [shape.text for shape in drawing.shapes if isinstance(shape, picture.Text)]
    assert {"headline", "one", "other"} <= set(said)
    assert [text for text in said if text.startswith("2 polls, 14 records")]
    with pytest.raises(fl.errors.InvalidArgumentError, match="nothing to draw"):
        picture.draw([], "headline")


@pytest.mark.parametrize("order", ["partition", "kip-387"])
@pytest.mark.parametrize("most", [5, 15, 30, 31])
def test_what_waits_is_drawn_also_where_a_fetch_ends_with_a_poll(small_broker, order, most):
    with fl.Producer(small_broker, {"linger.ms": 10_000}) as producer:
        for i in range(90):
            producer.send("orders", value=b"x", partition=i % 3)
    # a fetch brings one batch of 30
    config = {"max.poll.records": most, "fletchlog.fetch.order": order, "max.partition.fetch.bytes": 200}
    explained = explain(small_broker, ["orders"], config, polls=60)
    found = picture.spans(explained.story)
    for lane, own in found.runs.items():
        assert sum(run[2] for run in own) == 60
        waits = found.waits[lane]
        assert len(waits) == 2
        assert waits == sorted(waits)
        assert all(a <= b for a, b in waits)
        # whatever is handed out was waiting until then
        length = sum(end - start for start, end, _ in own)
        assert length == pytest.approx(sum(max(0, min(end, b) - max(start, a)) for start, end, _ in own for a, b in waits))


@pytest.mark.parametrize("most", [7, 10, 30])
def test_nothing_waits_once_it_is_handed_out_although_its_fetch_is_still_in_the_queue(small_broker, most):
    explained = explain(small_broker, ["orders"], {"max.poll.records": most, "fletchlog.fetch.order": "kip-387"}, polls=40)
    found = picture.spans(explained.story)
    for lane, own in found.runs.items():
        assert sum(records for _, _, records in own) == 30
        assert max(end for _, end in found.waits[lane]) == pytest.approx(own[-1][1])


def test_a_label_is_not_crossed_by_the_mark_of_a_request(small_broker):
    with fl.Producer(small_broker, {"linger.ms": 10_000}) as producer:
        for i in range(90):
            producer.send("orders", value=b"x", partition=i % 3)
    explained = explain(small_broker, ["orders"], {"max.poll.records": 500, "max.partition.fetch.bytes": 200, "fetch.max.bytes": 200}, polls=60)
    drawing = picture.draw([explained], "t")
    marks = [shape for shape in drawing.shapes if isinstance(shape, picture.Bar) and shape.w == 1.4]
    labels = [shape for shape in drawing.shapes if isinstance(shape, picture.Text) and shape.anchor == "middle" and shape.bold]
    assert labels
    assert marks
    for label in labels:
        half = len(label.text) * label.size * picture.DIGIT / 2
        assert not [m for m in marks if m.y <= label.y <= m.y + m.h and label.x - half < m.x + 0.7 < label.x + half], label


def test_an_svg_names_every_lane_and_is_the_same_every_time(runs):
    text = picture.svg(runs)
    assert text == picture.svg(runs)
    root = ET.fromstring(text)
    said = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("orders-0", "orders-1", "orders-2", "payments-0", "payments-1", "payments-2"):
        assert said.count(name) >= 3
    assert {"KIP-387", "Java client 2.6 (as 2.4 - 2.6)", "Java client 4.3 (as 4.2 - 4.4)"} <= set(said)
    assert said.count("30") >= 6


def test_runs_that_decide_the_same_share_a_panel_and_say_so(small_broker):
    config = {"max.poll.records": 10}
    orders = ["3.1", "3.6", "kip-387"]
    first = explain(small_broker, ["orders"], config, polls=12)
    found = distinct([first, *against(small_broker, ["orders"], config, orders, polls=12)])
    titles = [title(run) for run in found]
    # 2.6 asks in another order than 3.1 and 3.6, which share theirs here
    assert titles[-1] == "KIP-387"
    assert "Java client 3.1, 3.6: the same" in [name.replace("2.6, ", "") for name in titles]
    assert sum(len(run.same) + 1 for run in found) == 4
    said = [shape.text for shape in picture.draw(found, "h").shapes if isinstance(shape, picture.Text)]
    assert [text for text in said if text in titles] == titles


def test_one_partition_is_read_alike_by_every_order():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v")
        first = explain(broker, ["t"], polls=2)
        (only,) = distinct([first, *against(broker, ["t"], None, ["2.6", "kip-387"], polls=2)][::2])
    assert title(only) == "Java client 2.6, KIP-387: the same"


def test_a_card_shows_two_orders_and_how_long_a_partition_waits(small_broker):
    config = {"max.poll.records": 10}
    one = explain(small_broker, ["orders", "payments"], config, polls=20)
    (other,) = against(small_broker, ["orders", "payments"], config, ["kip-387"], polls=20)
    drawing = picture.card(one, other)
    waits = [max(p.worst_wait_polls for p in fairness(explained.polls, explained.ends).partitions) for explained in (one, other)]
    assert waits[0] > waits[1]
    assert drawing.headline == f"With Java client 2.6 a partition waits for its turn up to {waits[0]} polls, with KIP-387 up to {waits[1]} polls"
    assert all(shape.y < 630 and shape.x < 1200 for shape in drawing.shapes)
    assert imread(io.BytesIO(to_png(drawing, scale=1))).shape[:2] == (630, 1200)


def test_a_card_counts_one_in_the_singular_and_does_not_wait_for_0_polls():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v")
        one = explain(broker, ["t"], polls=2)
        (other,) = against(broker, ["t"], None, ["kip-387"], polls=2)
    drawing = picture.card(one, other)
    said = [shape.text for shape in drawing.shapes if isinstance(shape, picture.Text)]
    assert drawing.headline == "With Java client 2.6 and with KIP-387 no partition waits for its turn"
    assert "poll() of 1 partition: t" in said
    assert [text for text in said if text.startswith("1 poll, 1 record, ")]


def test_a_png_is_the_same_every_time(runs):
    assert picture.png(runs) == picture.png(runs)
    assert picture.png(runs).startswith(b"\x89PNG")


def test_forty_lanes_have_room(small_broker):
    small_broker.create_topic("many", partitions=40)
    with fl.Producer(small_broker) as producer:
        for partition in range(40):
            producer.send("many", value=b"x", partition=partition)
    drawing = picture.draw([explain(small_broker, ["many"], polls=5)], "t")
    names = [shape for shape in drawing.shapes if isinstance(shape, picture.Text) and re.fullmatch(r"many-\d+", shape.text) and shape.x < 50]
    assert len(names) == 40
    places = sorted(shape.y for shape in names)
    assert all(b - a >= names[0].size for a, b in itertools.pairwise(places))
    assert names[0].size >= 9


def test_nothing_to_draw_is_said(small_broker):
    small_broker.create_topic("empty")
    with pytest.raises(fl.errors.InvalidArgumentError, match="nothing to draw"):
        picture.svg([explain(small_broker, ["empty"], polls=1, timeout_ms=10)])
    with pytest.raises(fl.errors.InvalidArgumentError, match="nothing to show"):
        page([])


def test_a_notebook_shows_words_where_there_is_no_picture(small_broker, runs, monkeypatch):
    small_broker.create_topic("empty")
    nothing = explain(small_broker, ["empty"], polls=1, timeout_ms=10)
    assert "reads 1 partition of empty" in nothing._repr_html_()
    assert nothing._repr_png_() is None
    assert runs[0]._repr_html_() == picture.svg([runs[0]], dark=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert runs[0]._repr_png_() is None


def test_a_page_needs_nothing_from_elsewhere(runs):
    text = page(runs)
    assert not re.search(r"https?://", text.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"<(link|img|iframe)|@import|url\(|fetch\(|import\(", text)
    assert "@STORY@" not in text
    assert data_of(text) == json.loads(json.dumps(story(runs)))


def test_data_cannot_end_the_script(runs, small_broker):
    with fl.Consumer(
        small_broker, {"client.id": "</script><script>alert(1)</script><!--", "fletchlog.trace": True, "auto.offset.reset": "earliest"}
    ) as consumer:
        consumer.assign([("orders", 0)])
        consumer.poll()
        text = page([consumer.explain()])
        assert text == consumer.explain().page()
    assert "alert(1)</script>" not in text
    assert data_of(text)["runs"][0]["config"]["client.id"].endswith("<!--")


def test_a_page_says_where_any_two_of_its_runs_part(runs):
    parts = story(runs)["parts"]
    assert set(parts) == {"0-1", "0-2", "1-2"}
    assert parts["0-2"]["poll"] >= 1
    assert "KIP-387" in parts["0-2"]["text"]


def test_runs_that_are_the_same_are_named_in_a_sentence_by_their_releases(small_broker):
    config = {"max.poll.records": 10}
    first = explain(small_broker, ["orders"], config, polls=12)
    data = story([first, *against(small_broker, ["orders"], config, ["3.1", "3.6", "kip-387"], polls=12)])
    assert [run["title"] for run in data["runs"] if run["title"].endswith(": the same")]
    assert not [run["name"] for run in data["runs"] if "the same" in run["name"]]
    assert not [part["text"] for part in data["parts"].values() if "the same" in part["text"]]


def test_a_producers_trace_joins_the_page(runs, small_broker):
    faults = fl.testing.FaultPlan()
    faults.on(api="Produce", nth=1).lose_response()
    with fl.Producer(small_broker, {"fletchlog.trace": True, "enable.idempotence": True, "retry.backoff.ms": 1}, faults=faults) as producer:
        producer.send("orders", value=b"v", partition=0)
        producer.flush()
        trace = producer.trace()
    view = story(runs, trace)["producer"]
    assert view["lanes"] == [["orders", 0]]
    kinds = [event[1] for event in view["events"]]
    assert kinds.count("sent") == 2
    assert "retried" in kinds
    assert kinds.index("retried") < kinds.index("acknowledged")
    assert story([], trace)["runs"] == []
    with pytest.raises(fl.errors.SchemaError, match="producer's trace"):
        page(runs, runs[0].trace)


def test_notebooks_show_pictures_and_tables(small_broker):
    with fl.Consumer(small_broker, {"fletchlog.trace": True, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("orders", 0), ("orders", 1)])
        records = consumer.poll()
        explained = consumer.explain()
        assert explained._repr_html_().startswith("<svg")
        assert explained._repr_png_().startswith(b"\x89PNG")
        assert "30" in records._repr_html_()
        assert "orders-1" in records._repr_html_()
        assert "assign" in consumer.trace()._repr_html_()
    assert "payments" in small_broker._repr_html_()
    assert "high watermark" in small_broker.describe_topic("orders")._repr_html_()


def test_as_many_partitions_as_accents_and_stripes_look_different():
    looks = [tuple(shapes.lane_bars(number, 0, 0, 10, 10)) for number in range(len(shapes.ACCENTS) * len(shapes.STRIPES))]
    assert len(set(looks)) == len(looks) == 24


def test_a_picture_of_many_partitions_tells_them_apart():
    names = [f"t{number:02}-{partition}" for number in range(3) for partition in range(3)]
    with fl.Broker.in_memory() as broker:
        for name in sorted({name[:3] for name in names}):
            broker.create_topic(name, partitions=3)
            with fl.Producer(broker) as producer:
                for partition in range(3):
                    producer.send(name, value=b"v", partition=partition)
        drawing = picture.draw([explain(broker, ["t00", "t01", "t02"])], "headline")
    # left of the name of each lane is a bar of its look
    look = {}
    for place, shape in enumerate(drawing.shapes):
        if isinstance(shape, shapes.Text) and shape.text in names and shape.x < 50:
            before = itertools.takewhile(lambda s: isinstance(s, shapes.Bar) and s.w == 5, reversed(drawing.shapes[:place]))
            look[shape.text] = {(bar.fill, round(bar.y - shape.y, 2), round(bar.h, 2)) for bar in before}
    assert sorted(look) == names
    assert len({frozenset(bars) for bars in look.values()}) == len(names)


def test_the_page_and_the_pictures_have_the_same_looks():
    folder = files("fletchlog.explain") / "page"
    script, style = ((folder / name).read_text(encoding="utf-8") for name in ("timeline.js", "page.css"))
    found = dict(re.findall(r"^const (ACCENTS|STRIPES|STRIPE|STRIPE_ALPHA) = (.*);$", script, re.MULTILINE))
    assert json.loads(found["STRIPES"]) == [list(stripes) for stripes in shapes.STRIPES]
    assert (int(found["ACCENTS"]), float(found["STRIPE"]), float(found["STRIPE_ALPHA"])) == (len(shapes.ACCENTS), shapes.STRIPE, shapes.STRIPE_OPACITY)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root[^{]*\{(.*?)\}", style, re.DOTALL)[:2])
    for number, colour in enumerate(shapes.ACCENTS):
        assert (colour, shapes.DARK[colour]) == (light[f"t{number}"], dark[f"t{number}"])
    assert dark["on"] == shapes.ON_DARK


def test_an_svg_follows_its_viewer_to_the_dark_and_a_notebook_stays_light(runs):
    drawn = picture.svg(runs)
    rules = dict(re.findall(r'\[fill="(#\w+)"\]\{fill:(#\w+)\}', ET.fromstring(drawn).find("{*}style").text))
    fills = {element.get("fill") for element in ET.fromstring(drawn).iter() if element.get("fill")}
    assert fills <= set(rules)
    assert not any(rules[fill] == fill for fill in fills)
    assert "<style" not in runs[0]._repr_html_()
    assert "<style" not in picture.svg(runs, dark=False)
