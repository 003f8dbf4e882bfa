"""``dir``: names of objects, classes and modules are part of the graph's guards, their values are not."""

from __future__ import annotations

import math
import types

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Settings:
    first = 1

    def __init__(self):
        self.second = 2


class Slotted:
    __slots__ = ("left", "right")


class Listing:
    def __dir__(self):
        return ["b", "a"]


SETTINGS, SLOTTED, LISTING, LINEAR = Settings(), Slotted(), Listing(), torch.nn.Linear(2, 2)
MODULE = types.ModuleType("made_here")
MODULE.__dir__ = lambda: ["z", "y"]


def changed(x):
    settings = Settings()
    settings.third = 3
    del settings.second
    return x + 1, dir(settings), settings.__dir__() == object.__dir__(settings)


def changed_outside(x):
    SETTINGS.third = 3
    names = dir(SETTINGS)
    del SETTINGS.third
    return x + 1, names, dir(SETTINGS)


def made_inside(x):
    class Local:
        field = 1

    return x + 1, dir(Local), dir(Local())


def without_arguments(x):
    y = x + 1
    return y, dir()


def too_many(x):
    try:
        return x, dir(1, 2)
    except TypeError as error:
        return x + 1, str(error)


OBJECTS = [SETTINGS, Settings, SLOTTED, LISTING, LINEAR, math, MODULE, 3, "text", [], type, torch]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: getattr(obj, "__name__", type(obj).__name__))
def test_dir_gives_the_names_of_plain_python(obj):
    assert breaks_beside_plain(lambda x: (x + 1, dir(obj)), lambda: (torch.ones(2),)) == []


@pytest.mark.parametrize("program", [changed, changed_outside, made_inside, without_arguments, too_many])
def test_dir_sees_what_the_program_did(program):
    assert breaks_beside_plain(program, lambda: (torch.ones(2),)) == []


@pytest.mark.parametrize("holder", [SETTINGS, Settings, math])
def test_a_name_that_comes_or_goes_is_seen(holder):
    compiled = optimize()(lambda x: (x + 1, "late" in dir(holder)))
    assert not compiled(torch.ones(2))[1]
    holder.late = 1
    assert compiled(torch.ones(2))[1]
    del holder.late
    assert not compiled(torch.ones(2))[1]


def test_a_value_that_changes_is_not_looked_at():
    counted = []
    compiled = optimize(lambda graph, _: counted.append(1) or graph.forward)(lambda x: x + len(dir(SETTINGS)))
    for value in range(3):
        SETTINGS.second = value
        compiled(torch.ones(2))
    assert len(counted) == 1
