"""Recorded sessions of any client: reading them, and what they show.

    explained = fl.explain.clients("session.fltrace")
    print(explained.text())
    assert not explained.failing("error")

A session is written by `fletchlog serve --record`, `fletchlog proxy --record`, `Broker.listen(record=)`, `Cluster.proxy(record=)` and the pytest fixtures.
"""

# what a Connection and an Exchange call themselves
from fletchlog._core import SessionConnection as SessionConnection
from fletchlog._core import SessionExchange as SessionExchange
from fletchlog.explain.session.client import Client
from fletchlog.explain.session.explained import Explained, clients
from fletchlog.explain.session.finding import Finding
from fletchlog.explain.session.groups import Group, Member, Rebalance
from fletchlog.explain.session.lag import Behind
from fletchlog.explain.session.live_cluster import live
from fletchlog.explain.session.order import Arrival, Order, Waiting
from fletchlog.explain.session.polls import Poll, Polls
from fletchlog.explain.session.producers import Transaction
from fletchlog.explain.session.recorded import Connection, Exchange, Session, follow, frames

__all__ = [
    "Arrival",
    "Behind",
    "Client",
    "Connection",
    "Exchange",
    "Explained",
    "Finding",
    "Group",
    "Member",
    "Order",
    "Poll",
    "Polls",
    "Rebalance",
    "Session",
    "Transaction",
    "Waiting",
    "clients",
    "follow",
    "frames",
    "live",
]
