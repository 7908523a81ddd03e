"""`fletchlog explain`: why this poll order; what the clients of a recorded session do, and what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fletchlog._place import CLUSTER, DIRECTORY, Place
from fletchlog.cli import explain_session
from fletchlog.cli.arguments import ANYWHERE, argument, option
from fletchlog.cli.common import CommandError, configured, opened, topics_of
from fletchlog.cli.delivery import write_file
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, names_of_topics
from fletchlog.cli.tables import draw
from fletchlog.cli.text import note, say
from fletchlog.interop import readable_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fletchlog.explain import Explanation


EVERY = "all"
KIP_387 = "kip-387"


def explain(
    sources: list[Place] | None = argument(
        "DIR|TRACE|SESSION",
        "A broker's directory (fletchlog's or Kafka's), kafka://HOST:PORT, a saved trace (further names are compared with it), or a recorded session.",
        None,
        places=ANYWHERE,
    ),
    topics: str = option("--topics -t", "In the order in which a program would give them.", "", metavar="TOPIC,..", complete=names_of_topics),
    config: list[str] | None = CONFIG,
    compare: list[str] | None = option(
        "--compare",
        "Hold it against another order (kip-387), release or saved trace, or `all` releases and KIP-387; may be repeated.",
        metavar="ORDER|RELEASE|TRACE|all",
        raw=True,
    ),
    polls: int = option("--polls", "How many polls to explain.", 20),
    subscribe: bool = option("--subscribe --no-subscribe", "Use subscribe() in a group of one instead of assign().", False),
    text: bool = option("--text", "Tell the story in short (what happens also without any output option).", False),
    full: bool = option("--full", "Tell every decision of every poll.", False),
    html: Path | None = option("--html", "Write a page to step through it: every release and KIP-387 side by side.", writes=True),
    png: Path | None = option("--png", "Draw it as PNG.", writes=True),
    svg: Path | None = option("--svg", "Draw it as SVG.", writes=True),
    card: Path | None = option("--card", "Draw one sentence and two orders, 1200 x 630, to be shared (.png or .svg).", writes=True),
    as_json: Path | None = option("--json", "Write every step as JSON.", writes=True),
    save: Path | None = option("--save", "Save the trace, to explain or replay it later.", metavar="TRACE", writes=True),
    producer: Path | None = option("--producer", "Add the producer's view to the page, from its saved trace.", metavar="TRACE"),
    follow: bool = option("--follow", "Of a session that is being recorded: read on, and print findings as they appear.", False),
    fail_on: str = option(
        "--fail-on", "Of a session, or a cluster without --topics: end with code 1 for findings of this level.", "never", metavar="error|warning|never"
    ),
    max_poll_records: int | None = option("--max-poll-records", "Of a session: what its Java consumers have set; see `polls` there.", None),
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Tell which partition each poll() reads and why, in words, pictures or a page.

    A directory is opened for reading only and nothing is committed, in a cluster neither.

    Of a session (serve --record, proxy --record) it tells what each client does and what is wrong, of a cluster without --topics its groups.

      fletchlog explain data/ --topics orders,payments

      fletchlog explain data/ -t orders --polls 200 --compare all --html a.html

      fletchlog explain data/ -t orders --compare kip-387 --card order.png

      fletchlog explain --compare monday.arrow tuesday.arrow

      fletchlog explain session.fltrace --html session.html --fail-on error

      fletchlog explain kafka://localhost:9092
    """
    traces, named = list(compare or []), [item.name for item in sources or []]
    if named and explain_session.is_session(named[0]):
        _of_session(named, [topics, config, compare, png, svg, card, save, producer])
        explain_session.explain_session(named[0], html=html, as_json=as_json, text=text, follow=follow, fail_on=fail_on, max_poll_records=max_poll_records)
        return
    if follow:
        raise CommandError("--follow reads on in a session that is being recorded: name its file")
    if len(named) == 1 and sources and sources[0].kind == CLUSTER and not topics and not (html or as_json or png or svg or card or save):
        explain_session.explain_live(named[0], configured(command_config, config), fail_on)
        return
    # `--compare a b` has one trace as the option's value and the other as the source
    given = [*traces, *named] if all(Path(item).is_file() for item in named) else [*named, *traces]
    if not given and producer is None:
        raise CommandError("name a broker's directory, a cluster or a saved trace")
    source, against = next(iter(given), None), given[1:]
    orders = [item for item in against if not Path(item).exists()]
    if card is not None and not against and not Path(source or "").is_file():
        orders = [KIP_387]
    explanations: list[Explanation] = []
    if source is not None:
        client = configured(command_config, config)
        explanations = _first(Place(source), topics, client, orders, polls, subscribe=subscribe, every=EVERY in orders or (html is not None and not against))
        explanations += [_from_trace(Path(item)) for item in against if item not in orders]
    view = _producer_view(producer)
    if view is not None and html is None and as_json is None:
        raise CommandError("--producer adds the producer's view to a page: give --html FILE or --json FILE")
    if text or full or all(item is None for item in (html, png, svg, card, as_json, save)):
        _print(explanations, story=text or full or len(explanations) == 1, full=full)
    _write(explanations, view, html=html, png=png, svg=svg, card=card, as_json=as_json, save=save)


def _of_session(named: Sequence[str], others: Sequence[Any]) -> None:
    if len(named) > 1:
        raise CommandError(f"{named[0]} is a session, which is explained alone: leave out {', '.join(named[1:])}")
    if any(others):
        raise CommandError(f"{named[0]} is a session: it takes --text, --html, --json, --follow, --fail-on and --max-poll-records")


def _first(source: Place, topics: str, given: dict[str, Any], orders: Sequence[str], polls: int, *, subscribe: bool, every: bool) -> list[Explanation]:
    import fletchlog as fl
    from fletchlog.explain import compare

    if Path(source).is_file():
        if topics or given or orders:
            raise CommandError(f"{source} is a saved trace: its topics, properties and release are fixed; leave out --topics, --config and releases")
        return [_from_trace(Path(source))]
    names = topics_of(source, topics.strip(" ,"), given)
    if not names:
        with opened(source, read_only=True, client=given) as place:
            there = ", ".join(place.topics()[:10]) or "none"
        raise CommandError(f"name topics with --topics; {source} has {there}")
    for order in orders:
        if order != EVERY:
            compare.order_config(order)
    with opened(source, read_only=True, client=given) as place:
        title = readable_path(source) if source.kind == DIRECTORY else str(source)
        first = fl.explain.polls(place, names, given, polls=polls, subscribe=subscribe, title=title)
        rest = list(dict.fromkeys([*(compare.every_order(first) if every else []), *(order for order in orders if order != EVERY)]))
        return [first, *compare.against(place, names, given, rest, polls=polls, subscribe=subscribe, title=title)]


def _from_trace(path: Path) -> Explanation:
    import fletchlog as fl
    from fletchlog.explain import saved

    trace = saved.load_trace(path)
    if saved.whose(trace) == saved.PRODUCER:
        raise CommandError(f"{path} is a producer's trace; show it with --producer {path} --html FILE")
    return fl.explain.explanation(trace, source=readable_path(path))


def _producer_view(path: Path | None) -> Any:
    if path is None:
        return None
    from fletchlog.explain import saved

    trace = saved.load_trace(path)
    if saved.whose(trace) != saved.PRODUCER:
        raise CommandError(f"{path} is a consumer's trace; give it instead of the directory")
    return trace


def _print(explanations: Sequence[Explanation], *, story: bool, full: bool) -> None:
    """The story of the first run; for several runs also where they differ and how fair they are."""
    if not explanations:
        return
    from fletchlog.explain import align, parting, title

    if story:
        say(explanations[0].text(full=full))
        if not full and sys.stdout.isatty():
            note("--full tells every decision, --html FILE writes a page to step through them")
    if len(explanations) == 1:
        return
    first, *others = align(explanations)
    if first.source != others[0].source:
        say(f"{title(first)}: {first.source}")
    for other in others:
        found = parting(first.story, other.story)
        name = title(other) if other.source == first.source else f"{title(other)}: {other.source}"
        if found is None:
            say(f"\n{name}: decides the same, to the end")
            continue
        say(f"\n{name}: they part at poll {found.poll}, decision {found.decision}")
        say(f"  {title(first)}: {found.first or 'nothing more'}")
        say(f"  {name}: {found.second or 'nothing more'}")
    print()
    draw(_fairness([first, *others]))


def _fairness(explanations: Sequence[Explanation]) -> Table:
    from rich.table import Table

    from fletchlog.explain import distinct, fairness
    from fletchlog.explain.compare import titles

    table = Table(title="How fair is it?", title_justify="left", box=None, pad_edge=False)
    table.add_column("order", no_wrap=True)
    for column in ("polls", "records", "runs", "typical run", "longest run", "Jain's index", "worst wait, polls", "worst wait, records"):
        table.add_column(column, justify="right")
    items = distinct(explanations)
    for item, name in zip(items, titles(items), strict=True):
        f = fairness(item.polls, item.ends)
        index = "" if f.jain is None else f"{f.jain:.3f}"
        table.add_row(
            name, f"{f.polls:,}", f"{f.records:,}", f"{f.runs:,}", f"{f.typical_run:,}", f"{f.longest_run:,}", index,
            f"{f.worst_wait_polls:,}", f"{f.worst_wait_records:,}",
        )  # fmt: skip
    return table


def _write(
    explanations: Sequence[Explanation],
    producer: Any,
    *,
    html: Path | None,
    png: Path | None,
    svg: Path | None,
    card: Path | None,
    as_json: Path | None,
    save: Path | None,
) -> None:
    from fletchlog.explain import page, picture, save_trace, story

    if save is not None:
        if not explanations:
            raise CommandError("--save: there is no run to save")
        if str(save) == "-":
            raise CommandError("--save writes a file: give its name")
        save_trace(explanations[0].trace, save)
        note(f"wrote {save}")
    if as_json is not None:
        write_file(as_json, json.dumps(story(explanations, producer), separators=(",", ":")))
    if html is not None:
        write_file(html, page(explanations, producer))
    if svg is not None:
        write_file(svg, picture.svg(explanations))
    try:
        if png is not None:
            write_file(png, picture.png(explanations))
        if card is not None:
            write_file(card, _card(explanations, in_pixels=card.suffix.lower() != ".svg"))
    except ModuleNotFoundError as error:
        raise CommandError(f"a PNG needs {error.name}: pip install 'fletchlog[plot]'; SVG needs nothing") from None


def _card(explanations: Sequence[Explanation], *, in_pixels: bool) -> bytes | str:
    """The first run beside the first of another order, or the second."""
    from fletchlog.explain.picture import card
    from fletchlog.explain.shapes import to_png, to_svg

    if len(explanations) < 2:  # noqa: PLR2004 - two orders
        raise CommandError("--card shows two orders: give --compare ORDER, RELEASE or another trace")
    drawing = card(explanations[0], next((item for item in explanations[1:] if item.order != explanations[0].order), explanations[1]))
    return to_png(drawing, scale=1) if in_pixels else to_svg(drawing)
