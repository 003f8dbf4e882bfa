"""The level to which the program has turned ``__torch_function__`` off."""

from __future__ import annotations

from enum import IntEnum

from fxstack_capture import torch_compat


class Level(IntEnum):
    """The ``__torch_function__`` methods that the program has turned off."""

    ALL_ON = 0
    CLASSES_OFF = 1
    ALL_OFF = 2


def present_level() -> Level:
    """Return the level at which torch is."""
    if torch_compat.is_torch_function_all_disabled():
        return Level.ALL_OFF
    return Level.ALL_ON if torch_compat.is_torch_function_enabled() else Level.CLASSES_OFF
