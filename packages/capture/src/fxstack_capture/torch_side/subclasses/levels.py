"""The level to which the program has turned ``__torch_function__`` off."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """The ``__torch_function__`` methods that the program has turned off."""

    ALL_ON = 0
    CLASSES_OFF = 1
    ALL_OFF = 2
