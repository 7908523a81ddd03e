"""Makes python/fletchlog/configs.py, the typed dicts of properties, from the property table. With --check: is it in step?"""

from __future__ import annotations

import pathlib
import sys

import fletchlog as fl

PLACE = pathlib.Path(__file__).parents[1] / "python/fletchlog/configs.py"
CLASSES = {
    "broker": ("BrokerConfig", "Properties of `Broker`."),
    "topic": ("TopicConfig", "Properties of a topic, for `create_topic`."),
    "producer": ("ProducerConfig", "Properties of `Producer`."),
    "consumer": ("ConsumerConfig", "Properties of `Consumer`."),
}
HEAD = '''"""Properties as typed dicts: a type checker finds a key that is misspelt, and a value of a wrong type.

    config: fl.configs.ConsumerConfig = {"group.id": "g", "max.poll.records": 100}

Made by tools/typed_configs.py from the property table; `fletchlog.admin.config_table()` has defaults and descriptions. Values may be text always.
A dict that is written in the call is checked. Declare a configuration that a program computes or reads from a file as `dict[str, Any]`; checkers refuse
`dict[str, str]`, because they cannot tell it from a dict with a misspelt key.
"""

from collections.abc import Callable
from typing import TypedDict

'''


def type_of(kind: str) -> str:
    """The Python type of a property's values."""
    first = kind.split(maxsplit=1)[0]
    choices = kind.split(" | ")
    if kind == "true | false":
        return "bool | str"
    if first in {"int", "long"} or any(choice.lstrip("-").isdigit() for choice in choices):
        return "int | str"
    if first == "double":
        return "float | str"
    return "str | list[str]" if first == "list" else "str"


def text() -> str:
    """The module."""
    parts = []
    for scope, (name, doc) in CLASSES.items():
        keys = [key for key in fl.admin.config_table() if key.scope == scope]
        fields = ['        "oauth_cb": Callable[..., object],\n'] if any(key.name == "sasl.jaas.config" for key in keys) else []
        fields += [f'        "{key.name}": {type_of(key.type)},\n' for key in keys]
        parts.append(f'{name} = TypedDict(\n    "{name}",\n    {{\n{"".join(fields)}    }},\n    total=False,\n)\n{name}.__doc__ = "{doc}"\n')
    names = sorted(name for name, _ in CLASSES.values())
    return f"{HEAD}__all__ = {names!r}\n\n".replace("'", '"') + "\n".join(parts)


def main() -> int:
    """Writes the module; with --check only compares."""
    made = text()
    if sys.argv[1:] != ["--check"]:
        PLACE.write_text(made)
        return 0
    if PLACE.read_text() == made:
        return 0
    print(f"{PLACE.name} is not in step with the property table: run python tools/typed_configs.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
