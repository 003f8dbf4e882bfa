"""Flags are the class's own, whatever its metaclass answers."""

import enum

import pytest

from fxstack_capture.native.class_flags import is_heap_type, is_immutable


class Answering(type):
    def __getattribute__(cls, name):
        return 7.0


class Answered(metaclass=Answering):
    pass


@pytest.mark.parametrize(
    ("cls", "heap", "immutable"), [(Answered, True, False), (int, False, True), (enum.Enum, True, False)]
)
def test_flags(cls, heap, immutable):
    assert (is_heap_type(cls), is_immutable(cls)) == (heap, immutable)
