"""Tensor guards, by the compiled checks and by the header-free path: the same answers."""

import copy
import gc
from dataclasses import replace

import pytest
import torch

from fxstack_capture import native
from fxstack_capture.guards.records import tensor_facts
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS
from fxstack_capture.guards.tensor_reading import prepare_tensors
from fxstack_capture.sources import Local

X = Local("x")


@pytest.fixture(params=["compiled", "header-free"], autouse=True)
def way(request):
    """Every test runs both ways."""
    TENSOR_CHECKS.wait()
    if request.param == "compiled":
        if not TENSOR_CHECKS.compiled:
            pytest.skip(TENSOR_CHECKS.why_not or "")
        yield request.param
        return
    prepare_tensors()
    yield request.param
    prepare_tensors(TENSOR_CHECKS.capsule)


def subclass(name="Sub"):
    return type(name, (torch.Tensor,), {})


BASE = torch.zeros(2, 3, 4)
TENSORS = {
    "plain": BASE,
    "size": torch.zeros(2, 3, 5),
    "rank": torch.zeros(2, 3, 4, 1),
    "transposed": torch.zeros(2, 4, 3).transpose(1, 2),
    "int": BASE.long(),
    "half": BASE.half(),
    "requires grad": torch.zeros(2, 3, 4, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.zeros(2, 3, 4)),
    "frozen parameter": torch.nn.Parameter(torch.zeros(2, 3, 4), requires_grad=False),
    "buffer": torch.nn.Buffer(torch.zeros(2, 3, 4)),
    "meta": torch.zeros(2, 3, 4, device="meta"),
    "sparse": torch.zeros(2, 3, 4).to_sparse(),
    "csr": torch.eye(3).to_sparse_csr(),
    "scalar": torch.zeros(()),
    "empty": torch.zeros(0),
    "conj": torch.zeros(2, 3, 4, dtype=torch.complex64).conj(),
    "complex": torch.zeros(2, 3, 4, dtype=torch.complex64),
    "inference": torch.inference_mode()(lambda: torch.zeros(2, 3, 4))(),
    "subclass": torch.zeros(2, 3, 4).as_subclass(subclass()),
    "neg": torch._neg_view(torch.zeros(2, 3, 4)),
    "fake": torch._subclasses.FakeTensorMode().from_tensor(BASE),
    "quantized": torch.quantize_per_tensor(torch.zeros(2, 3, 4), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("name", TENSORS)
def test_facts_tell_tensors_apart(g, name):
    facts = tensor_facts(TENSORS[name])
    tree = g.tree((X, facts))
    # nn.Buffer is a tensor like any other
    same = (
        {"plain", "buffer"}
        if name in ("plain", "buffer") and type(TENSORS["buffer"]) is torch.Tensor
        else {name}
    )
    assert {other for other, tensor in TENSORS.items() if g.passes(tree, tensor, None)} == same


def test_other_values_are_no_tensors(g):
    tree = g.tree((X, tensor_facts(BASE)))
    assert not any(g.passes(tree, value, None) for value in (None, 1, [BASE], torch.Tensor, BASE.numpy()))


def test_dynamic_sizes_and_strides(g):
    facts = replace(tensor_facts(BASE), sizes=(None, 3, 4), strides=(12, 4, 1))
    assert g.holds(facts, torch.zeros(7, 3, 4))
    assert not g.holds(facts, torch.zeros(7, 4, 3))
    facts = replace(tensor_facts(BASE), sizes=(2, None, 4), strides=(None, 4, 1))
    assert g.holds(facts, torch.zeros(2, 9, 4))
    assert not g.holds(facts, torch.zeros(2, 9, 5))
    facts = replace(tensor_facts(BASE), strides=None)
    assert g.holds(facts, TENSORS["transposed"])


def test_storage_offset(g):
    view = torch.zeros(10)[4:6]
    facts = replace(tensor_facts(view), storage_offset=4)
    assert g.holds(facts, view)
    assert not g.holds(facts, torch.zeros(2))
    assert g.holds(tensor_facts(view), torch.zeros(2))


def test_leaves(g):
    leaf = torch.zeros(2, requires_grad=True)
    grown = leaf * 2
    for tensor in (leaf, grown, torch.zeros(2)):
        facts = replace(tensor_facts(tensor), is_leaf=tensor.is_leaf)
        assert g.holds(facts, tensor)
        assert not g.holds(replace(facts, is_leaf=not tensor.is_leaf), tensor)


def test_metadata_changes_in_place(g):
    t = torch.zeros(4, 2)
    tree = g.tree((X, tensor_facts(t)))
    assert g.passes(tree, t, None)
    for change, undo in (
        (lambda: t.requires_grad_(), lambda: t.requires_grad_(False)),
        (lambda: t.t_(), lambda: t.t_()),
        (lambda: t.resize_(2, 4), lambda: t.resize_(4, 2)),
    ):
        change()
        assert not g.passes(tree, t, None)
        undo()
        assert g.passes(tree, t, None)
    t.data = t.data.double()
    assert not g.passes(tree, t, None)


def test_tensor_classes_die(g):
    tree = g.tree((X, tensor_facts(BASE.as_subclass(subclass("Gone")))))
    gc.collect()
    assert tree.dead


def test_no_user_code_runs(g, way):
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("a guard ran __torch_function__")

    if way == "header-free":
        pytest.skip("attributes of subclasses are theirs")
    t = torch.zeros(2).as_subclass(Loud)
    assert g.holds(tensor_facts(t), t)


def test_device_types(g):
    assert not g.holds(replace(tensor_facts(BASE), device=torch.device("cuda", 0)), BASE)
    assert not g.holds(replace(tensor_facts(BASE), device=torch.device("meta")), BASE)


def test_storage_keys():
    assert (
        native.storage_key(BASE)
        == native.storage_key(BASE.view(-1))
        != native.storage_key(copy.deepcopy(BASE))
    )
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        native.storage_key(5)


def test_class_must_be_a_tensor_class(g):
    with pytest.raises(TypeError, match="is not a tensor class"):
        g.tree((X, replace(tensor_facts(BASE), cls=int)))
