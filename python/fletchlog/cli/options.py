"""Parameters that several commands take, and what a shell completes names with."""

from __future__ import annotations

from fletchlog.cli.arguments import ANYWHERE, argument, option
from fletchlog.cli.common import opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import fletchlog as fl
    from fletchlog._place import Place


def names_of_topics(place: Place, client: Mapping[str, str]) -> list[str]:
    """The topics of a place."""
    with opened(place, read_only=True, client=client) as broker:
        return broker.topics()


def groups_of(broker: fl.Broker | fl.Cluster) -> list[fl.admin.GroupListing]:
    """The groups of users: `copy` keeps its own in some, as it does in a topic that is not listed either."""
    from fletchlog.ledger import GROUPS

    return [listed for listed in broker.groups() if not listed.group_id.startswith(GROUPS)]


def names_of_groups(place: Place, client: Mapping[str, str]) -> list[str]:
    """The groups of a place."""
    with opened(place, read_only=True, client=client) as broker:
        return [listed.group_id for listed in groups_of(broker)]


DIR = argument("DIR", "The broker's directory.")
PLACE = argument("DIR", "The broker's directory, or kafka://HOST:PORT of a cluster.", places=ANYWHERE)
TOPIC = argument("TOPIC", "Name of the topic.", complete=names_of_topics)
TOPICS = option("--topics -t", "Default: all.", "", "TOPIC,..", complete=names_of_topics)
GROUP = argument("GROUP", "group.id.", complete=names_of_groups)
PARTITIONS = option("--partition -p", "A partition; may be repeated. Default: all.")
JSON = option("--json", "JSON instead of tables and sentences.", False)
YES = option("--yes -y", "Do not ask.", False)
CONFIG = option("--config -c", "A property by Kafka's name; may be repeated.", metavar="NAME=VALUE")
DELETE_CONFIG = option("--delete-config -d", "A property to reset; may be repeated.", metavar="NAME")
# the name that Kafka's own tools have for it
COMMAND_CONFIG = option("--command-config", "Properties of clients of a cluster, as Kafka's tools read them.", metavar="FILE")


_FORMATS = ("string", "bytes", "json", "json-schema", "avro", "protobuf", "short", "integer", "long", "float", "double", "boolean", "confluent")


def names_of_formats(_place: Place, _client: Mapping[str, str]) -> list[str]:
    """What keys and values may be, as `fletchlog.serde.formats` knows it, which takes long to import."""
    return list(_FORMATS)


def typed(flags: str, what: str) -> Any:
    """An option that names a format of keys or values."""
    return option(flags, f"{what}: {', '.join(_FORMATS)}. Default: bytes.", metavar="FORMAT", complete=names_of_formats)
