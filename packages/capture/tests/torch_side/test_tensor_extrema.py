"""``min`` and ``max`` of tensors of one element are one graph under ``fullgraph=True``, with Python's result."""

import itertools

import pytest
import torch

import fxstack_capture as fx

NUMBERS = (-1.0, 0.0, 2.5, float("nan"))

PAIRS = {
    "two": lambda a, b: max(a, b) * 2,
    "three": lambda a, b: min(a, b, a + b) * 2,
    "of_a_list": lambda a, b: max([a, b]) * 2,
    "of_a_generator": lambda a, b: min(t * 2 for t in (a, b)) + 1,
    "of_a_tensor": lambda a, b: max(torch.stack([a, b, a - b])) + 1,
    "default": lambda a, b: max([], default=a) + min([a, b], default=0),
    "one": lambda a, b: max([a]) + b,
    "a_number": lambda a, b: torch.ones(3) * max(a, 0) + min(1.5, b),
    "numbers": lambda a, b: torch.ones(2) * max(1, a, 2.0),
    "nested": lambda a, b: torch.ones(2) * min(max(a, 0.0), 1.0),
    "of_an_item": lambda a, b: torch.ones(2) * max(a.item(), 0) + min(b.item(), 1.0),
    "elements": lambda a, b: max(a.view(1), b.view(1)) * 2,
}


def one_graph(fn, *args):
    graphs = []

    def count(module, _inputs):
        graphs.append(module)
        return module

    compiled = fx.optimize(count, fullgraph=True)(fn)
    return [compiled(*arg) for arg in args], len(graphs)


@pytest.mark.parametrize("name", PAIRS)
def test_values_of_python(name):
    pairs = [tuple(map(torch.tensor, pair)) for pair in itertools.product(NUMBERS, NUMBERS)]
    found, graphs = one_graph(PAIRS[name], *pairs)
    torch.testing.assert_close(found, [PAIRS[name](*pair) for pair in pairs], equal_nan=True)
    assert graphs == 1


def test_integers_and_bools():
    def program(a, b, c):
        return max(a, 2) + min(b, a), max(c, ~c), min(c, True)

    args = [(torch.tensor(a), torch.tensor(3), torch.tensor(c)) for a in (1, 5) for c in (True, False)]
    found, graphs = one_graph(program, *args)
    expected = [[int(value) for value in program(*arg)] for arg in args]
    assert ([[int(value) for value in values] for values in found], graphs) == (expected, 1)


def test_gradients():
    def program(a, b):
        return max(a, b) * 3 + min(a * b, 1.0)

    def gradients(run):
        leaves = [torch.tensor(value, requires_grad=True) for value in (2.0, 5.0)]
        run(*leaves).backward()
        return [0 if leaf.grad is None else leaf.grad for leaf in leaves]

    assert gradients(fx.optimize(fullgraph=True)(program)) == gradients(program)


def writes_to_the_result(a, b):
    best = max(a, b)
    return best.add_(1)


def writes_to_an_operand(a, b):
    best = max(a, b)
    a.add_(1)
    return best * 2


OTHERS = {
    "write_to_the_result": writes_to_the_result,
    "write_to_an_operand": writes_to_an_operand,
    "other_dtype": lambda a, b: max(a, b.double()) + 1,
    "a_float_beside_integers": lambda a, b: max(a.long(), 0.5) + 1,
    "a_number_out_of_range": lambda a, b: max(a.to(torch.int8), 1000) + 1,
    "other_shape": lambda a, b: max(a, b.view(1)) + 1,
    "key": lambda a, b: max(a, b, key=torch.neg),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_break_the_graph(name):
    def args():
        return torch.tensor(1.0), torch.tensor(2.0)

    with pytest.raises(fx.Unsupported):
        one_graph(OTHERS[name], args())
    assert fx.optimize()(OTHERS[name])(*args()) == OTHERS[name](*args())


def test_without_fullgraph_the_object_is_pythons():
    compiled = fx.optimize()(lambda a, b: (max(a, b) is b, max(a, 7)))
    assert compiled(torch.tensor(1.0), torch.tensor(2.0)) == (True, 7)


def test_errors():
    with pytest.raises(RuntimeError, match="ambiguous"):
        one_graph(lambda x: max(x, 0), (torch.ones(3),))
    with pytest.raises(ValueError, match="empty"):
        one_graph(lambda x: max(x.sum() for _ in ()), (torch.ones(3),))
