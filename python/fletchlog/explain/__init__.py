"""Why records come in this order, from the consumer's own trace: in words, pictures and a page.

    explanation = fl.explain.polls(broker, ["orders", "payments"], polls=20)
    print(explanation.text())
    Path("order.html").write_text(fl.explain.page([explanation]))

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

__all__ = [
    "Explanation",
    "Fairness",
    "Parting",
    "PartitionFairness",
    "Place",
    "Replay",
    "Story",
    "against",
    "align",
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
