"""Parameters of a class of the compiled module are those of its `__new__`; griffe looks for `__init__` only."""

from __future__ import annotations

from typing import Any

import griffe


class NewIsInit(griffe.Extension):
    """Takes `__new__` for `__init__` where there is none."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Once the members of a class are known."""
        if "__new__" in cls.members and "__init__" not in cls.members:
            made = cls.members["__init__"] = cls.members["__new__"]
            made.returns = None
