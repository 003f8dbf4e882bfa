"""One compiled graph for many sizes: inputs with symbolic dimensions."""

import pytest
import torch
from compare import as_graph, dynamic
from helpers import run_graph, save_everything

from fxstack_functionalize import AotOptions, aot

F = torch.nn.functional
LABELS = torch.tensor([1, 0, -1, 0, 0, 2, 1, 0, 2, 1])


def dropped_nothing(x):
    y = x * 2
    F.dropout(F.dropout(y, 0.5, False), 0.0, True).add_(1)
    return (y,)


CASES = {
    "pointwise": lambda x: (x.sin() * 2,),
    "views": lambda x: (x.t(), x.view(-1), x[1:], x.reshape(-1)[2:], x.size(0)),
    "views of intermediate": lambda x: ((x * 2).view(-1), (x * 2).t()),
    "mutation": lambda x: (x.mul(2).add_(1), x.sum() / x.numel()),
    "softmax matmul": lambda x: (torch.softmax(x @ x.t(), -1) @ x,),
    "sizes": lambda x: (x.new_zeros(x.size(0), x.size(1) * 2) + x[0, 0], x.shape[0] * x.shape[1]),
    "cat": lambda x: (torch.cat([x, x * 2], 1).chunk(2, 0),),
    "expand": lambda x: (x.unsqueeze(0).expand(3, -1, -1) * torch.arange(3.0)[:, None, None],),
    "transposed result": lambda x: ((x.t() * 2).t() + 1, (x * 3).t().contiguous().t()),
    "products of batches": lambda x: (x[None] @ x.t()[None], x[0] @ x[None].mT, x[None, None] @ x.t()),
    "dropout of nothing": dropped_nothing,
    "layer norm": lambda x: (torch.nn.functional.layer_norm(x, (x.size(1),)),),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [True, False])
def test_many_sizes(name, grad):
    fn = CASES[name]
    example = [torch.randn(4, 6, requires_grad=grad)]
    function = aot(
        as_graph(fn, 1),
        dynamic(example),
        fw_compiler=run_graph,
        partitioner=save_everything,
        options=AotOptions(verify=True),
    )
    for shape in [(4, 6), (6, 8), (10, 3)]:
        x = torch.randn(*shape, requires_grad=grad)
        y = x.detach().clone().requires_grad_(grad)
        ours, eager = function(x), fn(y)
        flat = list(zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(eager)))
        for a, b in flat:
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()
                assert a._is_view() == b._is_view()
            else:
                assert a == b
        if grad:
            for values in zip(*flat):
                sum(v.pow(2).sum() for v in values if isinstance(v, torch.Tensor)).backward()
            torch.testing.assert_close(x.grad, y.grad)


_LABELS = torch.tensor([[1, 0, -1, 0, 0], [-1, 4, 4, 4, 4], [3, 2, 1, 0, 4]])
_BYTES = torch.arange(2 * 5 * 7, dtype=torch.uint8).mul(37).reshape(1, 2, 5, 7)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (F.multilabel_margin_loss, (torch.randn(3, 5), _LABELS)),
        (lambda x: F.interpolate(x, (8, 9), mode="bilinear"), (_BYTES,)),
        (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (_BYTES,)),
        (lambda x: F.interpolate(x, scale_factor=2.5, mode="bicubic"), (_BYTES,)),
    ],
)
def test_operators_are_not_replaced_by_compositions_that_compute_something_else(function, inputs):
    compiled = aot(
        as_graph(function, len(inputs)), dynamic(inputs), fw_compiler=run_graph, partitioner=save_everything
    )
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
