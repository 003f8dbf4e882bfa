"""The C extension; ``fxstack_capture.native`` documents what it offers and is the way to use it."""

from typing import Any

def __getattr__(name: str) -> Any: ...
