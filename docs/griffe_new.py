"""Parameters of a class of the compiled module are those of its `__new__`; griffe looks for `__init__` only."""

from __future__ import annotations

from typing import Any

import griffe


class NewIsInit(griffe.Extension):
    """Takes `__new__` for `__init__` where there is none."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Once the members of a class are known."""
        if "__init__" in cls.members:
            return
        forms = cls.overloads.get("__new__", [])
        found = cls.members.get("__new__") or max(
            forms, key=lambda form: len(form.parameters), default=None
        )
        if found is not None:
            made = cls.members["__init__"] = found
            made.overloads = [form for form in forms if form is not made] or None
            for form in (made, *forms):
                form.returns = None
