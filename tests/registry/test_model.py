"""Random sequences of calls against a small model, by two registries over one broker, which are restarted at any point."""

import json
from contextlib import ExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import fletchlog as fl
from tests.registry.conftest import opened, record

SUBJECTS = st.sampled_from(["a", "b", ":.ctx:a"])
# each is BACKWARD compatible with those before it, and with none behind it
CHAIN = [record(*(f"f{number}" for number in range(first, 4))) for first in range(4)]
LEVELS = st.sampled_from(["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FULL"])


def context(subject):
    return subject[1:].partition(":")[0] if subject.startswith(":.") else "."


class RegistryMachine(RuleBasedStateMachine):
    """What a registry has to answer, beside two that are asked."""

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.broker = self.stack.enter_context(fl.Broker.in_memory())
        self.calls, self.turn = [], 0
        # subject -> number -> [position in the chain, id, deleted]
        self.versions, self.configs = {}, {}
        # context -> position -> id; context -> the largest id
        self.ids, self.largest = {}, {}

    @initialize()
    def open(self):
        self.registries = ExitStack()
        self.calls = [self.registries.enter_context(opened(self.broker)) for _ in range(2)]

    def call(self, *arguments):
        """A request to one of the two, in turn."""
        self.turn += 1
        status, body = self.calls[self.turn % 2](*arguments)
        return body["error_code"] if status != 200 else body

    def live(self, subject):
        return {number: one for number, one in self.versions.get(subject, {}).items() if not one[2]}

    def level(self, subject):
        return self.configs.get(subject) or (self.configs.get(None) if context(subject) == "." else None) or "BACKWARD"

    @rule(subject=SUBJECTS, position=st.integers(0, len(CHAIN) - 1))
    def register(self, subject, position):
        found = self.call("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(CHAIN[position])})
        live, level = self.live(subject), self.level(subject)
        same = next((one for one in live.values() if one[0] == position), None)
        if same:
            assert found["id"] == same[1]
            return
        others = [live[number][0] for number in sorted(live)]
        others = others if level.endswith("_TRANSITIVE") else others[-1:]
        # fewer fields read more of them: a later one in the chain reads an earlier one
        bad = {"BACKWARD": lambda old: position < old, "FORWARD": lambda old: position > old, "FULL": lambda old: position != old}
        if level != "NONE" and any(bad[level.removesuffix("_TRANSITIVE")](old) for old in others):
            assert found == 409, (level, position, others)
            return
        here = context(subject)
        known = self.ids.setdefault(here, {})
        used = {one[1] for name, versions in self.versions.items() if context(name) == here for one in versions.values()}
        if known.get(position) not in used:
            self.largest[here] = known[position] = self.largest.get(here, 0) + 1
        assert found["id"] == known[position]
        versions = self.versions.setdefault(subject, {})
        number = max(versions, default=0) + 1
        assert found["version"] == number
        for old in [old for old, one in versions.items() if one[2] and one[1] == known[position]]:
            del versions[old]
        versions[number] = [position, known[position], False]

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject, permanent):
        found = self.call("DELETE", f"/subjects/{subject}" + ("?permanent=true" if permanent else ""))
        versions, live = self.versions.get(subject, {}), self.live(subject)
        if not versions:
            assert found == 40401
        elif permanent and live:
            assert found == 40405
        elif permanent:
            assert found == sorted(self.versions.pop(subject))
        elif not live:
            assert found == 40404
        else:
            assert found == sorted(live)
            for one in live.values():
                one[2] = True
            self.configs.pop(subject, None)

    @rule(subject=SUBJECTS, number=st.integers(1, 4), permanent=st.booleans())
    def delete_version(self, subject, number, permanent):
        found = self.call("DELETE", f"/subjects/{subject}/versions/{number}" + ("?permanent=true" if permanent else ""))
        versions = self.versions.get(subject, {})
        if not versions:
            assert found == 40401
        elif number not in versions:
            assert found == 40402
        elif permanent and not versions[number][2]:
            assert found == 40407
        elif permanent:
            assert found == number
            del versions[number]
        elif versions[number][2]:
            assert found == 40406
        else:
            assert found == number
            versions[number][2] = True
            if not self.live(subject):
                self.configs.pop(subject, None)

    @rule(subject=st.none() | SUBJECTS, level=LEVELS)
    def configure(self, subject, level):
        assert self.call("PUT", "/config" + (f"/{subject}" if subject else ""), {"compatibility": level}) == {"compatibility": level}
        self.configs[subject] = level

    @rule(subject=SUBJECTS)
    def forget_configuration(self, subject):
        found, old = self.call("DELETE", f"/config/{subject}"), self.configs.pop(subject, None)
        assert found == ({"compatibilityLevel": old} if old else 40401)

    @rule()
    def restart(self):
        self.registries.close()
        self.open()

    @invariant()
    def every_answer_is_the_models(self):
        if not self.calls:
            return
        every = {name: versions for name, versions in self.versions.items() if versions}
        assert self.call("GET", "/subjects") == sorted(name for name in every if self.live(name))
        assert self.call("GET", "/subjects?deleted=true") == sorted(every)
        found = [(one["subject"], one["version"], one["id"], one["deleted"]) for one in self.call("GET", "/schemas?deleted=true")]
        assert found == [(name, number, one[1], one[2]) for name in sorted(every) for number, one in sorted(every[name].items())]
        assert self.call("GET", "/config/b?defaultToGlobal=true") == {"compatibilityLevel": self.level("b")}

    def teardown(self):
        self.registries.close()
        self.stack.close()


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
