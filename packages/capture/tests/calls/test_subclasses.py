"""``cls.__subclasses__()``, by which registries find what is in them: read in the graph, and noticed when it changes."""

import gc

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Registered:
    weight = 2


class First(Registered):
    weight = 3


def weighted(x):
    """As einops looks for the backend of a tensor."""
    found, waiting = [], Registered.__subclasses__()
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        found.append(cls.__name__)
        x = x * cls.weight
    return x, found


def test_classes_that_come_and_go_are_noticed():
    backend = Counting()
    compiled = fx.optimize(backend, fullgraph=True)(weighted)

    def check():
        (ours, names), (theirs, expected) = compiled(torch.ones(2)), weighted(torch.ones(2))
        assert torch.equal(ours, theirs)
        assert names == expected
        return names

    assert check() == check() == ["First"]
    second = type("Second", (First,), {"weight": 5})
    assert check() == ["First", "Second"]
    del second
    gc.collect()
    assert check() == ["First"]
    assert len(backend.graphs) in (2, 3)


def test_the_list_is_the_program_s_own():
    def f(x):
        classes = Registered.__subclasses__()
        classes.clear()
        return x + len(Registered.__subclasses__()), classes

    result, classes = fx.optimize(fullgraph=True)(f)(torch.zeros(2))
    assert result.tolist() == [1.0, 1.0]
    assert classes == []


def test_classes_made_inside_end_the_graph():
    def f(x):
        class Inside(Registered):
            pass

        return x + len(Registered.__subclasses__())

    with pytest.raises(fx.Unsupported, match="__subclasses__"):
        fx.optimize(fullgraph=True)(f)(torch.zeros(2))
