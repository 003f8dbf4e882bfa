"""Who runs a call: a rule, the interpreter, torch's recorder or CPython itself."""

from fxstack_capture.calls.dispatch import CallDispatcher

__all__ = ["CallDispatcher"]
