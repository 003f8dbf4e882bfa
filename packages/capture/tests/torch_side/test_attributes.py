"""Attributes of stand-ins: what a user may see, and nothing more."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed._functional_collectives  # its results have attributes that tensors lack
from recorder import new_trace

from fxstack_capture import optimize
from fxstack_capture.breaks import GraphBreak
from fxstack_capture.sources import Local


def fake_of(real):
    trace = new_trace()
    return trace, trace.torch.enter_tensor(real, Local("x"))


REALS = {
    "plain": torch.randn(2, 3),
    "parameter": torch.nn.Parameter(torch.randn(2, 3)),
    "strided": torch.randn(3, 4).t()[1:],
    "nonleaf": torch.randn(2, requires_grad=True) * 2,
    "bool": torch.tensor([True]),
    "scalar": torch.tensor(3),
    "complex": torch.zeros(2, dtype=torch.complex64),
}
METADATA = (
    "shape dtype device ndim requires_grad is_leaf layout is_cuda is_cpu is_sparse is_quantized is_meta "
    "is_nested itemsize nbytes is_mkldnn retains_grad __doc__ is_complex"
).split()


@pytest.mark.parametrize("kind", REALS)
@pytest.mark.parametrize("name", METADATA)
def test_metadata_equals_the_real_tensors(kind, name):
    real = REALS[kind]
    trace, x = fake_of(real)
    found, expected = trace.torch.load_attr(x, name), getattr(real, name)
    if callable(expected):
        found, expected = trace.torch.call(found, (), {}), expected()
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("kind", REALS)
def test_class_is_the_real_one(kind):
    trace, x = fake_of(REALS[kind])
    assert trace.torch.python_type(x) is trace.torch.load_attr(x, "__class__") is type(REALS[kind])


@pytest.mark.parametrize("name", ["fake_mode", "constant", "fake_device", "real_tensor", "nothing"])
def test_missing_attribute(name):
    real = torch.ones(2)
    trace, x = fake_of(real)
    with pytest.raises(AttributeError) as expected:
        getattr(real, name)
    with pytest.raises(AttributeError) as found:
        trace.torch.load_attr(x, name)
    assert str(found.value) == str(expected.value)
    assert any(type(g.check).__name__ == "HasKey" for g in trace.guards)


def test_user_attributes():
    real = torch.ones(2)
    real.tag = "old"
    trace, x = fake_of(real)
    assert trace.torch.load_attr(x, "tag") == "old"
    trace.torch.store_attr(x, "tag", "new")
    assert trace.torch.load_attr(x, "tag") == "new"
    trace.torch.delete_attr(x, "tag")
    with pytest.raises(AttributeError):
        trace.torch.load_attr(x, "tag")
    assert real.tag == "old"
    assert [(w.name, w.deleted) for w in trace.torch.attribute_writes] == [("tag", False), ("tag", True)]


def test_grad_is_an_input_of_its_own():
    real = torch.ones(2, requires_grad=True)
    real.grad = torch.ones(2)
    trace, x = fake_of(real)
    grad = trace.torch.load_attr(x, "grad")
    assert trace.torch.source_of(grad).name == "x.grad"
    trace.torch.store_attr(x, "grad", None)
    assert trace.torch.load_attr(x, "grad") is None
    trace.torch.store_attr(x, "_grad", grad)
    assert trace.torch.load_attr(x, "grad") is trace.torch.load_attr(x, "_grad") is grad


def test_data_that_is_the_tensor_itself_changes_nothing():
    """``module.to(x.device)`` in a forward stores each parameter so."""
    trace, x = fake_of(torch.ones(2))
    trace.torch.store_attr(x, "data", x)
    trace.torch.store_attr(x, "data", trace.torch.load_attr(x, "data"))
    trace.torch.store_attr(x, "requires_grad", False)
    assert trace.torch.attribute_writes == []


class ToDtype(torch.nn.Linear):
    def forward(self, x):
        return super(ToDtype, self.to(x.dtype)).forward(x)


class Widened(torch.nn.Linear):
    def forward(self, x):
        return super(Widened, self.double()).forward(x.double())


class Thawed(torch.nn.Linear):
    def forward(self, x):
        for parameter in self.requires_grad_().train().parameters():
            parameter.requires_grad = True
            parameter.data = parameter.data.to(x.dtype)
        return super().forward(x)


@pytest.mark.parametrize(("module", "graphs"), [(ToDtype, 1), (Thawed, 1), (Widened, None)])
def test_conversions_of_modules_break_the_graph_only_if_they_change_parameters(module, graphs):
    made, found = module(3, 2), []
    made.weight.grad = torch.ones(2, 3)
    compiled = optimize(lambda graph, _: found.append(graph) or graph, fullgraph=graphs == 1)(
        copy.deepcopy(made)
    )
    for x in (torch.ones(4, 3), torch.ones(4, 3) * 2):
        assert torch.equal(compiled(x), made(x))
    assert graphs in (None, len(found))


@pytest.mark.parametrize("name", ["_version", "_base", "__dict__", "__cuda_array_interface__"])
def test_what_a_stand_in_cannot_know(name):
    trace, x = fake_of(torch.ones(2))
    with pytest.raises(GraphBreak):
        trace.torch.load_attr(x, name)


@pytest.mark.parametrize("name", ["requires_grad", "data", "real"])
def test_assignment_to_computed_attributes_of_inputs(name):
    trace, x = fake_of(torch.ones(2))
    with pytest.raises(GraphBreak):
        trace.torch.store_attr(x, name, True)


def test_assignment_to_requires_grad_of_a_new_tensor():
    trace, x = fake_of(torch.ones(2))
    y = trace.torch.call(torch.sin, (x,), {})
    trace.torch.store_attr(y, "requires_grad", True)
    assert trace.torch.load_attr(y, "requires_grad") is True
