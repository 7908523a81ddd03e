"""Why records come in this order, from the consumer's own trace: in words, pictures and a page; and what the clients of a recorded session do.

    explanation = fl.explain.polls(broker, ["orders", "payments"], polls=20)
    print(explanation.text())
    Path("order.html").write_text(fl.explain.page([explanation]))

    print(fl.explain.clients("session.fltrace").text())

The engine makes every decision shown here; these modules only describe it.
"""

from fletchlog._core import java_hash
from fletchlog.explain._fairness import Fairness, PartitionFairness, fairness
from fletchlog.explain._replay import Replay, replay
from fletchlog.explain._story import Story, tell
from fletchlog.explain.compare import Parting, against, align, distinct, parting, title
from fletchlog.explain.order import Place
from fletchlog.explain.pages import page, story
from fletchlog.explain.run import Explanation, explanation, polls
from fletchlog.explain.saved import load_trace, save_trace
from fletchlog.explain.session.explained import Explained, clients

__all__ = [
    "Explained",
    "Explanation",
    "Fairness",
    "Parting",
    "PartitionFairness",
    "Place",
    "Replay",
    "Story",
    "against",
    "align",
    "clients",
    "distinct",
    "explanation",
    "fairness",
    "java_hash",
    "load_trace",
    "page",
    "parting",
    "polls",
    "replay",
    "save_trace",
    "story",
    "tell",
    "title",
]
