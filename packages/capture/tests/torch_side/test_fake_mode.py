"""The fake mode of traces: same answers as torch's, from recipes."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

import fxstack_capture as fx
from fxstack_capture import native
from fxstack_capture.breaks import GraphBreak
from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_capture.torch_side.fakes.operator_cache import OperatorCache


def test_has_the_attributes_of_torchs_mode():
    assert vars(FakeTensorMode()).keys() <= vars(CaptureFakeMode()).keys()


def t(*shape, **kw):
    return torch.empty(*shape, **kw)


CALLS = {
    "add": lambda x: x + 1,
    "promote": lambda x: x + t(1, dtype=torch.float64),
    "scalar_kinds": lambda x: (x.long() + 1, x.long() + 1.0, x.long() + True, x.long() + 1j),
    "view": lambda x: x.view(-1)[2:],
    "expand": lambda x: x[:1].expand(5, -1),
    "transpose": lambda x: x.t() + x.t(),
    "split": lambda x: x.split(1),
    "inplace": lambda x: x.add_(1),
    "inplace_view": lambda x: x.unsqueeze_(0),
    "resize": lambda x: x.resize_(7),
    "setitem": lambda x: (x.__setitem__(0, 1.0), x)[1],
    "cat": lambda x: torch.cat([x, x, x[:1]]),
    "linear": lambda x: torch.nn.functional.linear(x, t(5, 3), t(5)),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, (3,), None, None, 1e-5),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, t(3), t(3), training=True),
    "max": lambda x: x.max(0),
    "out": lambda x: torch.add(x, x, out=t(2, 3)),
    "out_resized": lambda x: torch.add(x, x, out=t(0)),
    "conj": lambda x: (x * 1j).conj(),
    "factory": lambda x: (torch.arange(4), torch.full((2,), 3), torch.full((2,), 3.0)),
    "index": lambda x: (x[torch.tensor([0, 1])], x[:, torch.tensor([0])]),
    "to": lambda x: (x.to(torch.float16), x.to(torch.float32), x.to("meta")),
    "channels_last": lambda x: x.view(1, 2, 3, 1).contiguous(memory_format=torch.channels_last),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "unbind": lambda x: x.unbind(1),
    "empty_result": lambda x: x[:0] + 1,
    "reshape_copy": lambda x: x.t().reshape(-1),
    "reshape_view": lambda x: x.reshape(-1).add_(1),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "no_meta_kernel": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
}


def described(result, mode, x):
    def facts(v):
        same = [s.untyped_storage()._cdata == v.untyped_storage()._cdata for s in (x,)]
        return (
            v.shape,
            v.stride(),
            v.storage_offset(),
            v.dtype,
            v.device,
            v.requires_grad,
            v.is_leaf,
            v.is_conj(),
            v.untyped_storage().nbytes(),
            same,
            v._is_view(),
            v is x,
        )

    with mode:
        return [facts(v) for v in tree_leaves(result)]


def run(make_mode, fn, requires_grad):
    with make_mode() as mode:
        x = t(2, 3).requires_grad_(requires_grad)
        x = x * 1 if requires_grad else x
        return described(fn(x), mode, x)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_recipes_give_what_torch_gives(name, requires_grad):
    fn = CALLS[name]
    if requires_grad and name in ("out", "out_resized", "resize"):
        pytest.skip("an error in eager too")
    expected = run(FakeTensorMode, fn, requires_grad)
    for _ in range(3):
        assert run(CaptureFakeMode, fn, requires_grad) == expected


def test_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("fxstack_capture.torch_side.fakes.operator_cache._CAPACITY", 3)
    cache = OperatorCache()
    for i in range(10):
        cache.put((i,), i)
    assert cache.get((9,)) == 9 and cache.get((0,)) is None


def test_constants_keep_their_values():
    with CaptureFakeMode():
        for value in (3, 4):
            assert (torch.tensor(value) + 1).item() == value + 1


SHIFTS = {
    "left": lambda x: x << 1,
    "right": lambda x: x >> 1,
    "by_tensor": lambda x: x << torch.arange(3),
    "of_bytes": lambda x: torch.ones(3, dtype=torch.uint8) >> x,
    "by_scalar_tensor": lambda x: x << torch.tensor(2, dtype=torch.int16),
    "layout": lambda x: x.expand(2, 3).t() << 3,
}


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_of_masks_promote(name):
    x = torch.tensor([True, False, True])
    expected = SHIFTS[name](x)
    with CaptureFakeMode() as mode:
        result = SHIFTS[name](mode.from_tensor(x))
    said = (result.dtype, result.shape, result.stride())
    assert said == (expected.dtype, expected.shape, expected.stride())


@pytest.mark.parametrize("by", [True, torch.tensor([True])])
def test_what_eager_refuses_to_shift_is_refused(by):
    with CaptureFakeMode() as mode, pytest.raises((RuntimeError, NotImplementedError)):
        mode.from_tensor(torch.tensor([True])) << by


@pytest.mark.parametrize("symbolic", [False, True])
def test_what_a_decomposition_calls_is_not_refused(symbolic):
    """torch works out ``geometric`` of integers by ``rand_like`` of integers, which eager has no kernel for."""
    mode = CaptureFakeMode()
    if symbolic:
        mode.use_symbols(CaptureShapeEnv(lambda: ()))
    x = mode.from_tensor(torch.ones(5, dtype=torch.int64), static_shapes=not symbolic)
    with mode:
        assert torch.ops.aten.geometric(x, 0.5).dtype is torch.int64
    with mode, pytest.raises((GraphBreak, RuntimeError)):  # again no, after the call above
        torch.rand_like(x)


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
def test_calls_with_a_symbolic_float_have_a_recipe(monkeypatch):
    """Each formula has a recipe of its own, because the numbers in a call may be guarded."""
    computed, plain = [], CaptureFakeMode._as_eager

    def as_eager(self, make, func, *args):
        computed.append(func)
        return plain(self, make, func, *args)

    monkeypatch.setattr(CaptureFakeMode, "_as_eager", as_eager)

    @fx.optimize(lambda graph, inputs: graph)
    def step(xs, number):
        return [torch.lerp(x, x, number * 0.5) for x in xs] + [torch.lerp(x, x, number * 0.25) for x in xs]

    xs = [torch.ones(7, 3) for _ in range(5)]
    for number in (0.5, 0.75, 0.875):  # the second number makes it symbolic
        computed.clear()
        results = step(xs, number)
        expected = [torch.lerp(x, x, number * part) for part in (0.5, 0.25) for x in xs]
        torch.testing.assert_close(results, expected)
        if number == 0.75:
            assert computed.count(torch.ops.aten.lerp.Scalar) == 2
