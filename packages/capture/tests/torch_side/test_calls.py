"""Recording of torch calls, however they are spelled, compared with eager."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from recorder import check, trace_calls

from fxstack_capture.breaks import GraphBreak


def t(*shape, **kw):
    torch.manual_seed(1)
    return torch.randn(*shape, **kw)


CASES = {
    "function": (lambda x, y: torch.add(x, y, alpha=2), t(3), t(3)),
    "operator": (lambda x, y: x * y - 1 + 2 / x, t(3), t(3)),
    "reflected": (lambda x: 2**x + (1 - x) + 3 // x, t(3)),
    "method": (lambda x: x.sum(dim=0, keepdim=True), t(3, 4)),
    "python_method": (lambda x: x.split(2), t(4, 3)),
    "python_norm": (lambda x: x.norm(p=1), t(4, 3)),
    "new_of_size": (lambda x: x.new(x.shape).fill_(2) + x, t(3, 2)),
    "new_of_no_dimensions": (lambda x: x.new(torch.Size()).fill_(2) + x, t(3)),
    "new_of_data": (lambda x: x.new([3, 4]), t(3)),
    "unbound": (lambda x: torch.Tensor.mul(x, 3), t(3)),
    "functional": (lambda x, w: F.linear(F.relu(x), w), t(2, 3), t(4, 3)),
    "boolean_dispatch": (lambda x: F.max_pool2d(x, 2), t(1, 2, 4, 4)),
    "boolean_dispatch_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), t(1, 2, 4, 4)),
    "linalg": (lambda x: torch.linalg.svd(x)[1], t(3, 3)),
    "fft": (lambda x: torch.fft.rfft(x), t(8)),
    "special": (lambda x: torch.special.expm1(x), t(8)),
    "overload": (lambda x: torch.ops.aten.add.Tensor(x, x), t(3)),
    "packet": (lambda x: torch.ops.aten.sin(x), t(3)),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), t(2, 3), t(3, 4)),
    "return_types": (lambda x: x.max(dim=0).values + x.max(0)[0], t(3, 4)),
    "sort": (lambda x: torch.sort(x, descending=True), t(3, 4)),
    "nested_lists": (lambda x, y: torch.cat([x, torch.stack([y, y]).sum(0)]), t(3), t(3)),
    "index": (lambda x: x[..., 1:, None] + x[:, [0, 1, 0], None].sum(), t(3, 4)),
    "index_tensor": (lambda x, i: x[i, :2], t(3, 4), torch.tensor([2, 0])),
    "mask": (lambda x: torch.where(x > 0, x, 0.0), t(3, 4)),
    "factory": (lambda x: x + torch.arange(4) + torch.tensor([1.0, 2, 3, 4]), t(3, 4)),
    "old_classes_as_types": (lambda x: (x.type(torch.DoubleTensor), x.type("torch.IntTensor")), t(3)),
    "factory_like": (lambda x: torch.zeros_like(x) + x.new_ones(4), t(3, 4)),
    "dtype": (lambda x: x.to(torch.float64).half().type_as(x), t(3)),
    "identity": (lambda x: x.contiguous().to(torch.float32), t(3)),
    "attributes": (lambda x: x.T + x.mT.real, t(3, 3)),
    "metadata": (lambda x: (x.shape[0] * x.size(1), x.ndim, x.stride(), x.is_contiguous()), t(3, 4)),
    "promotion": (lambda x: torch.result_type(x, 1) is torch.float32, t(3)),
    "unbind": (lambda x: sum(x.unbind(0)), t(3, 4)),
    "iteration": (lambda x: [a * 2 for a in x], t(3, 4)),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x).conj().resolve_conj()).sum(), t(4)),
    "inplace": (lambda x: x.add_(1).mul_(2), t(3)),
    "inplace_operator": (lambda x: operator.iadd(x, 1) * 2, t(3)),
    "setitem": (lambda x: (x.__setitem__(0, 5.0), x * 1)[1], t(3)),
    "view_inplace": (lambda x: (x[1:].mul_(3), x + 1)[1], t(3)),
    "out": (lambda x, y: torch.add(x, 1, out=y), t(3), t(3)),
    "foreach": (lambda x, y: torch._foreach_add([x, y], 1), t(3), t(2)),
    "foreach_inplace": (lambda x, y: (torch._foreach_add_([x, y], 1), x * y[0])[1], t(3), t(2)),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v, training=True), t(4, 3), t(3), t(3).abs()),
    "dropout": (lambda x: F.dropout(x, 0.5), t(30)),
    "random": (lambda x: x + torch.rand_like(x) + torch.randn(3), t(3)),
    "embedding": (lambda w, i: F.embedding(i, w), t(5, 3), torch.tensor([1, 4])),
    "sdpa": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), t(1, 2, 4, 8)),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), t(4, 3), torch.tensor([1, 0, 2, 1])),
    "requires_grad": (lambda x: (x * 2, x.detach() * 2), t(3, requires_grad=True)),
    "no_grad": (
        lambda x: (torch._C._set_grad_enabled(False), x * 2, torch._C._set_grad_enabled(True), x * 3)[1::2],
        t(3, requires_grad=True),
    ),
    "data": (lambda x: x.data * 2, t(3, requires_grad=True)),
    "unused_random": (lambda x: (torch.rand(3), x * torch.rand(3))[1], t(3)),
    "input_returned": (lambda x: (x, x * 2), t(3)),
    "noncontiguous": (lambda x: x.view(-1) if x.is_contiguous() else x.reshape(-1), t(3, 4).t()),
    "meshgrid": (lambda x: torch.meshgrid(x, x, indexing="ij"), t(3)),
    "lstm": (
        lambda x, h, c, w, r: torch._VF.lstm(x, (h, c), [w, r], False, 1, 0.0, False, False, False),
        t(5, 2, 3),
        t(1, 2, 4),
        t(1, 2, 4),
        t(16, 3),
        t(16, 4),
    ),
    "inf": (lambda x: x.masked_fill(x > 0, float("-inf")) + float("nan"), t(4)),
    "size_arg": (lambda x: x.new_zeros(x.size()).expand(x.shape), t(3, 4)),
    "attr_shape_unpack": (lambda x: x.reshape(*x.shape[:-1], 2, -1), t(3, 4)),
    "tensor_in_kwargs": (lambda x, y: torch.add(input=x, other=y), t(3), t(3)),
    "dunder_contains_shape": (lambda x: (len(x), x.numel(), x.dim(), x.element_size()), t(3)),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name):
    fn, *args = CASES[name]
    check(fn, *args)


BREAKS = {
    "item": (lambda x: x.sum().item(), "data-dependent-number"),
    "tolist": (lambda x: x.tolist(), "data-dependent-number"),
    "bool": (lambda x: bool(x.sum() > 0), "data-dependent-branch"),
    "float": (lambda x: float(x.sum()), "data-dependent-value"),
    "nonzero": (lambda x: torch.nonzero(x), "data-dependent-size"),
    "mask_index": (lambda x: x[x > 0], "data-dependent-size"),
    "equal": (lambda x: torch.equal(x, x + 1), "data-dependent-value"),
    "data_ptr": (lambda x: (x + 1).data_ptr(), "unsupported-call"),
    "repr": (lambda x: repr(x), "data-dependent-value"),
    "generator": (lambda x: x.clone().normal_(generator=torch.Generator()), "unsupported-call"),
    "resize_input": (lambda x: x.resize_(1), "unsupported-call"),
    "foreign": (lambda x: x + FOREIGN, "unsupported-tensor"),
}
FOREIGN = torch.ones(3)


@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name):
    fn, reason = BREAKS[name]
    with pytest.raises(GraphBreak) as caught:
        trace_calls(fn, t(3))
    assert caught.value.record.reason.id == reason


ERRORS = {
    "shapes": lambda x: x @ torch.ones(4, 4),
    "broadcast": lambda x: x + torch.ones(2),
    "view": lambda x: x.view(7),
    "dtype": lambda x: torch.cat([x, 1]),
    "argument": lambda x: x.sum(dims=3),
    "dim": lambda x: x.sum(dim=4),
    "index": lambda x: x[5],
    "too_many_indices": lambda x: x[0, 0],
    "leaf": lambda x: torch.nn.functional.linear(x, x.new_ones(2, 2)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_eagers(name):
    fn = ERRORS[name]
    with pytest.raises(Exception) as expected:
        fn(t(3))
    with pytest.raises(type(expected.value)) as found:
        trace_calls(fn, t(3))
    assert str(found.value) == str(expected.value)
