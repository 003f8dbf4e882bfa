"""Dictionaries of the outside that are written before they are read, and what is asked of them afterwards."""

import pytest
import torch
from running import check

X = torch.tensor([1.0, 2.0, 3.0])


def stored_and_deleted(x, d):
    d["k"] = x
    del d["k"]
    return x * 2, "k" in d, len(d), list(d)


def stored_and_popped(x, d):
    d["k"] = x
    d.pop("k")
    return x * len(d), d.get("k", "none")


def stored_deleted_and_stored(x, d):
    d["k"] = x
    del d["k"]
    d["k"] = x * 2
    return x + 1, list(d)


def deleted_attribute(x, obj):
    obj.k = x
    del obj.k
    return x * 2, hasattr(obj, "k"), vars(obj)


class Holder:
    def __init__(self, **kwargs):
        vars(self).update(kwargs)

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None


@pytest.mark.parametrize("fn", [stored_and_deleted, stored_and_popped, stored_deleted_and_stored])
@pytest.mark.parametrize("held", [{}, {"k": 1}, {"k": 1, "l": 2}, {"l": 2, "k": 1}])
def test_written_before_it_is_read(fn, held):
    check(fn, X, held)


@pytest.mark.parametrize("held", [{}, {"k": 1}, {"k": 1, "l": 2}])
def test_attribute_written_before_it_is_read(held):
    check(deleted_attribute, X, Holder(**held))
