"""The typed dicts of properties are in step with the table; tests/typing judges them by type checkers."""

from __future__ import annotations

import typed_configs

import fletchlog as fl


def test_they_are_in_step_with_the_property_table() -> None:
    assert typed_configs.PLACE.read_text() == typed_configs.text()
    assert set(fl.configs.ConsumerConfig.__annotations__) - {"oauth_cb"} == {key.name for key in fl.admin.config_table() if key.scope == "consumer"}
