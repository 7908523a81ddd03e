"""Objects that are closed at the end of a `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Closing:
    """`with` closes it."""

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Closes."""
        self.close()


class AsyncClosing:
    """`async with` closes it."""

    async def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Closes."""
        await self.close()
