"""Operators on lists whose positions have equal metadata: the results, memory and errors of eager."""

import pytest
import torch

import fxstack_capture


def lists():
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3), (4,), (2, 3), (2, 3), (4,), ()]
    made = [torch.rand(shape, generator=generator) for shape in shapes]
    return [*made, made[0].double(), made[0].t(), made[2].double(), made[2].t(), made[0].t().contiguous()]


def outcome(fn, wrap):
    values, others = lists(), lists()
    try:
        result = wrap(fn)(values, others)
    except Exception as error:
        return type(error), str(error)
    described = [(x, x.dtype, x.stride(), x._version) for x in (*(result or ()), *values, *others)]
    return described, [k for k, x in enumerate(result or ()) for y in values if x is y]


def changed(values, others):
    torch._foreach_add_(values, others, alpha=2)
    torch._foreach_mul_(values, [float(k) for k in range(len(values))])


def changed_results(values, others):
    results = torch._foreach_sqrt(values)
    torch._foreach_div_(results, others)
    torch._foreach_addcmul_(values[:2], results[:2], others[:2], value=0.5)
    return results


def numbers(values, _others):
    return torch._foreach_add(values, [1.0 if k % 2 else 2.0 for k in range(len(values))])


def viewed(values, others):
    """The results are distinct, and the views of one do not show in another."""
    results = torch._foreach_neg(values)
    results[2].view(-1)[0] = 7.0
    return torch._foreach_maximum(results, others)


def unequal(values, others):
    return torch._foreach_add(values, others[1:])


def mismatched(values, others):
    return torch._foreach_add(values, [*others[:3], torch.ones(5), *others[4:]])


@pytest.mark.parametrize("fn", [changed, changed_results, numbers, viewed, unequal, mismatched])
def test_lists_of_equal_tensors(fn):
    graphs = []
    backend = lambda graph, _: graphs.append(graph) or graph.forward
    found = outcome(fn, lambda fn: fxstack_capture.optimize(backend)(fn))
    expected = outcome(fn, lambda fn: fn)
    assert str(found) == str(expected)
    assert len(graphs) == (fn is not unequal and fn is not mismatched)
