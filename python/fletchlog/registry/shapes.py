"""What metadata, rules and configurations may be. What has another shape is refused before it is kept: clients and the registry itself rely on it later.

Kafka's registry: the Jackson classes `entities.Metadata`, `RuleSet`, `Rule` and `requests.ConfigUpdateRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[Any], str | None]

_TEXTS_OF_A_RULE = ("name", "doc", "kind", "mode", "type", "expr", "onSuccess", "onFailure")


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def _truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _scalar(value: Any) -> str | None:
    """Numbers and truths are taken for texts, as Jackson does."""
    return None if isinstance(value, str | int | float) else "a text"


def _list_of(check: Check) -> Check:
    def checked(value: Any) -> str | None:
        if not isinstance(value, list):
            return "a list"
        return next((f"a list, each {wrong}" for one in value if (wrong := check(one))), None)

    return checked


def _map_of(check: Check) -> Check:
    def checked(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "an object"
        return next((f"an object, each value {wrong}" for one in value.values() if (wrong := check(one))), None)

    return checked


def _object(**fields: Check) -> Check:
    """An object whose fields, if they are there and not null, have these shapes."""

    def checked(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "an object"
        for name, check in fields.items():
            if value.get(name) is not None and (wrong := check(value[name])):
                return f"an object whose `{name}` is {wrong}"
        return None

    return checked


_METADATA = _object(tags=_map_of(_list_of(_text)), properties=_map_of(_scalar), sensitive=_list_of(_text))
_RULE = _object(**dict.fromkeys(_TEXTS_OF_A_RULE, _text), tags=_list_of(_text), params=_map_of(_scalar), disabled=_truth)
_RULES = _object(migrationRules=_list_of(_RULE), domainRules=_list_of(_RULE), encodingRules=_list_of(_RULE))
_OF_SCHEMAS: Mapping[str, Check] = {"metadata": _METADATA, "ruleSet": _RULES}
_OF_CONFIGURATIONS: Mapping[str, Check] = {
    **dict.fromkeys(("normalize", "validateFields", "validateNames"), _truth),
    **dict.fromkeys(("alias", "compatibilityGroup", "compatibilityPolicy"), _text),
    **dict.fromkeys(("defaultMetadata", "overrideMetadata"), _METADATA),
    **dict.fromkeys(("defaultRuleSet", "overrideRuleSet"), _RULES),
}


def wrong_in_schema(given: Mapping[str, Any]) -> str | None:
    """What metadata or rules of a schema should be and are not, as a sentence."""
    return _wrong(given, _OF_SCHEMAS)


def wrong_in_configuration(given: Mapping[str, Any]) -> str | None:
    """What a field of a configuration should be and is not, as a sentence."""
    return _wrong(given, _OF_CONFIGURATIONS)


def _wrong(given: Mapping[str, Any], checks: Mapping[str, Check]) -> str | None:
    for name, check in checks.items():
        if given.get(name) is not None and (wrong := check(given[name])):
            return f"`{name}` is {wrong}"
    return None
