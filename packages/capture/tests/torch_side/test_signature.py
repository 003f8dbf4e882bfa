"""The captured graph in the interchange format: who its inputs are."""

from __future__ import annotations

import pytest
import torch
from recorder import trace_calls

import fxstack_capture
from fxstack_capture.sources import InstanceAttr, Item, Key, Local
from fxstack_capture.torch_side.recording.signature import qualified_name, stage_graph
from fxstack_interchange import verify

SELF = Local("self")


def modules(of, name):
    return Key(InstanceAttr(of, "_modules"), name)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (Key(InstanceAttr(SELF, "_parameters"), "w"), "w"),
        (Key(InstanceAttr(modules(modules(SELF, "a"), "0"), "_buffers"), "b"), "a.0.b"),
        (Key(SELF, "w"), None),
        (Item(SELF, 0), None),
        (SELF, None),
    ],
)
def test_qualified_names(source, expected):
    assert qualified_name(source) == expected


def test_module():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    captured = fxstack_capture.capture(module, torch.randn(3, 4)).stage_graph
    kinds = {spec.target: spec.kind.value for spec in captured.signature.inputs}
    assert kinds["0.weight"] == "parameter"
    assert kinds["1.running_mean"] == "buffer"
    assert kinds[None] == "user_input"
    verify(captured)


def test_symbols():
    captured = trace_calls(lambda x: x.new_zeros(x.shape[0] * 2) + 1, torch.ones(5), dynamic=True)
    signature = stage_graph(captured.code).signature
    (symbol,) = signature.symbols
    (spec,) = [s for s in signature.inputs if s.kind.value == "symbol"]
    assert (symbol.hint, symbol.lower, symbol.upper, symbol.source) == (5, 2, None, "a0.size(0)")
    assert spec.target == symbol.name
