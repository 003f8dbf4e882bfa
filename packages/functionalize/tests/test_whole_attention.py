"""``flex_attention`` as one operator: what torch computes for it, and its gradients, beside autograd's on all scores."""

import pytest
import torch
from torch._higher_order_ops.flex_attention import math_attention

from fxstack_interchange.operators.attention import Operand, UnsupportedModifierError, trace_attention
from fxstack_interchange.operators.attention_operators import attention_of, attention_operator

look_up = torch.ops.aten.index
SCALE = 0.3


def score(s, b, h, m, n, table, slopes):
    return torch.where(m >= n, s * look_up(slopes, [h]), s) + look_up(table, [h, n]) + (m - n) / 9


def mask(_b, h, m, n, at):
    return (m + at >= n) | (h == 1)


def graphs(score, mask, buffers, operand_positions, numbers=0):
    return trace_attention(
        score, mask, operand_positions=operand_positions, buffers=buffers, numbers=numbers,
        device=torch.device("cpu"), scale=SCALE, blocks=None, gradients=True,
    )  # fmt: skip


def operands(*tensors):
    return [Operand(t.dim(), t.dtype, t.requires_grad) for t in tensors]


def inputs():
    torch.manual_seed(0)
    shapes = ((2, 4, 7, 8), (1, 2, 9, 8), (1, 2, 9, 6), (4, 9), (4,))
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def test_equals_autograd_on_all_scores():
    query, key, value, *buffers = inputs()
    at = torch.tensor(2)
    attention = graphs(score, mask, operands(*buffers), ([0, 1], [2]), numbers=1)
    operator = attention_operator(attention)
    arguments = (query, key, value, [], buffers, [2])
    out, sums, largest = (x.detach() for x in operator(*(_plain(x) for x in arguments)))
    wanted = math_attention(query, key, value, score, (mask,), SCALE, {}, tuple(buffers), (at,))
    for got, want in zip((out, sums, largest), wanted, strict=True):
        torch.testing.assert_close(got, want)
    grads = [torch.randn_like(out), torch.randn_like(sums)]
    expected = torch.autograd.grad(wanted[:2], [query, key, value, *buffers], grads)
    made = operator._overloadpacket.backward(*(_plain(x) for x in arguments), out, sums, grads[0], [grads[1]])
    for got, want in zip(made, expected, strict=True):
        torch.testing.assert_close(got, want)


def _plain(value):
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def test_is_defined_once_for_what_computes_the_same():
    first, second = (graphs(score, mask, operands(*inputs()[3:]), ([0, 1], [2]), 1) for _ in "ab")
    assert attention_operator(first) is attention_operator(second)
    operator = attention_operator(first)
    for overload, is_backward in ((operator, False), (operator._overloadpacket.backward, True)):
        found, backward = attention_of(overload)
        assert (found.key, backward) == (first.key, is_backward)
    assert attention_of(torch.ops.aten.add.Tensor) is None


def test_a_mask_of_everything_is_none():
    always = lambda b, h, m, n: b.new_ones((), dtype=torch.bool)
    assert graphs(lambda s, *_: s, always, [], ([], [])).mask is None


REFUSED = {
    "a sum": lambda s, b, h, m, n, t: s + t.sum(),
    "a row": lambda s, b, h, m, n, t: s + look_up(t, [h])[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_more_than_numbers(name):
    table = torch.zeros(4, 4, requires_grad=True)
    with pytest.raises(UnsupportedModifierError):
        graphs(REFUSED[name], lambda b, h, m, n: m >= n, operands(table), ([0], []))
