"""``dynamic_sources``, ``unbacked_sources`` and ``dynamic_values``: as many graphs as torch.compile makes."""

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.shapes.chosen import torch_name
from fxstack_capture.sources import Free, Globals, InstanceAttr, InstanceDict, Item, Key, Local

ones = torch.ones

BEFORE_213 = torch.__version__ < "2.13"


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1):
        return self.linear(x) * scale


def double(x):
    return x * 2


def scaled(x, k):
    return x * k


def graphs(compiling, fn, calls, **settings):
    """Numbers of graphs after each call."""
    made, counts = [], []
    compiled = compiling(fn, lambda gm, _: made.append(gm) or gm.forward)
    with torch.compiler.config.patch(**settings):
        for call in calls:
            compiled(*call)
            counts.append(len(made))
    return counts


def ours(dynamic=None):
    return lambda fn, backend: fx.optimize(backend, dynamic=dynamic)(fn)


def incumbent(dynamic=None):
    torch._dynamo.reset()
    return lambda fn, backend: torch.compile(fn, backend=backend, dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize(
    ("fn", "calls", "settings"),
    [
        (double, [(ones(3),), (ones(4),), (ones(1),)], {"dynamic_sources": "L['x']"}),
        (double, [(ones(1),), (ones(4),), (ones(5),)], {"dynamic_sources": "L['x']"}),
        (double, [(ones(3, 3),), (ones(3, 4),), (ones(4, 4),)], {"dynamic_sources": "L['x']:1"}),
        (double, [(ones(3),), (ones(4),)], {"dynamic_sources": "L['other'], L['x'] : 0"}),
        (double, [(ones(3),), (ones(4),)], {"dynamic_sources": r"L\['x.*"}),
        (double, [(ones(3),), (ones(4),)], {"dynamic_sources": "x"}),
        (double, [(ones(3),), (ones(4),), (ones(1),)], {"unbacked_sources": "L['x']"}),
        (scaled, [(ones(3), 2), (ones(3), 5)], {"dynamic_sources": "L['k']"}),
        (scaled, [(ones(3), 2), (ones(3), 5), (ones(3), 1)], {"unbacked_sources": "L['k']"}),
        (scaled, [(ones(1111), 1111), (ones(4), 3)], {"dynamic_values": "7, 1111"}),
        (Scaled(), [(ones(3, 4),), (ones(4, 4),)], {"dynamic_sources": "L['x']"}),
        (Scaled(), [(ones(3, 4), 2), (ones(3, 4), 3)], {"dynamic_sources": "L['scale']"}),
        (lambda d: d["a"][0] + 1, [({"a": [ones(3)]},), ({"a": [ones(4)]},)], {"dynamic_sources": "L['d']['a'][0]"}),
    ],
)  # fmt: skip
def test_as_many_graphs(fn, calls, settings, dynamic):
    if BEFORE_213 and any(name == "dynamic_values" or ":" in value for name, value in settings.items()):
        pytest.skip("torch 2.11 has neither values nor dimensions of sources")
    if settings == {"dynamic_sources": "x"}:  # the name in our messages, which torch does not know
        assert graphs(ours(dynamic), fn, calls, **settings) == [1, 1]
        return
    expected = graphs(incumbent(dynamic), fn, calls, **settings)
    assert graphs(ours(dynamic), fn, calls, **settings) == expected


def test_as_options():
    made = []
    options = fx.CaptureOptions(dynamic_sources="L['x']:0", unbacked_sources="L['x']:1")
    compiled = fx.optimize(lambda gm, _: made.append(gm) or gm.forward, options=options)(double)
    for shape in ((3, 3), (4, 2), (5, 9)):
        assert compiled(ones(shape)).tolist() == (ones(shape) * 2).tolist()
    assert len(made) == 1


def test_marks_precede_names():
    x = ones(3)
    fx.mark_static(x)
    assert graphs(ours(), double, [(x,), (ones(4),)], dynamic_sources="L['x']") == [1, 2]


def test_a_pattern_that_is_none_is_said():
    with pytest.warns(UserWarning, match="not a valid regular expression"):
        assert graphs(ours(), double, [(ones(3),), (ones(4),)], dynamic_sources="L[(") == [1, 2]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (Local("x"), "L['x']"),
        (Free("x"), "L['x']"),
        (Key(Globals(), "K"), "G['K']"),
        (Item(Key(Local("d"), "a"), 1), "L['d']['a'][1]"),
        (InstanceAttr(Local("self"), "k"), "L['self'].k"),
        (Key(InstanceDict(Local("self")), "k"), "L['self'].k"),
        (Item(Local("args"), 0), "L['x']"),
    ],
)
def test_names_are_torchs(source, name):
    assert torch_name(source, {Item(Local("args"), 0): Local("x")}) == name
