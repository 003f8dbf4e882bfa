"""Which overriding of torch functions the program has turned off."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """What the program has turned off."""

    ALL_ON = 0
    CLASSES_OFF = 1
    ALL_OFF = 2
