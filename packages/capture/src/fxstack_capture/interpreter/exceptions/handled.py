"""The stack of exceptions that are being handled."""

from __future__ import annotations


class HandledException:
    """The exception being handled in a thread or generator. CPython: ``_PyErr_StackItem``."""

    __slots__ = ("previous", "value")

    def __init__(self, previous: HandledException | None = None) -> None:
        self.value: BaseException | None = None
        self.previous = previous

    def topmost(self) -> BaseException | None:
        """Return the innermost exception being handled, which ``sys.exc_info()`` returns."""
        item: HandledException | None = self
        while item is not None:
            if item.value is not None:
                return item.value
            item = item.previous
        return None
