"""``associative_scan`` of single elements, compiled by all stages, against a loop: values and gradients."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import fxstack

LENGTH = 7
FACTOR = torch.linspace(0.5, 1.5, 3, dtype=torch.float64)


def recurrence(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def rotation(left, right):
    """Products of complex numbers: each part needs both gradients."""
    return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]


def softmax(left, right):
    """The largest score and the sum of exponentials."""
    largest = torch.maximum(left[0], right[0])
    return largest, left[1] * (left[0] - largest).exp() + right[1] * (right[0] - largest).exp()


def segments(left, right):
    """Sums that begin again where the flag is set."""
    return left[0] | right[0], torch.where(right[0], right[1], left[1] + right[1])


def motion(left, right):
    """Time, velocity and place: each depends on those before it."""
    return left[0] + right[0], left[1] + right[1], left[2] + left[1] * right[0] + right[2]


FUNCTIONS = {
    "sum": (lambda a, b: (a[0] + b[0],), 1),
    "product": (lambda a, b: (a[0] * b[0],), 1),
    "largest": (lambda a, b: (torch.maximum(a[0], b[0]),), 1),
    "weighted by another tensor": (lambda a, b: (a[0] * FACTOR * b[0],), 1),
    "recurrence": (recurrence, 2),
    "rotation": (rotation, 2),
    "softmax": (softmax, 2),
    "segments": (segments, 2),
    "motion": (motion, 3),
}


def inputs(name, count, length=LENGTH, dtype=torch.float64):
    torch.manual_seed(0)
    made = [torch.rand(2, length, 3, dtype=dtype) + 0.5 for _ in range(count)]
    if name == "segments":
        made[0] = made[0] > 1.3
    return [x.requires_grad_(x.is_floating_point()) for x in made]


def by_loop(fn, xs, dim, reverse):
    rows = [tuple(x.select(dim, t) for x in xs) for t in range(xs[0].shape[dim])]
    rows = rows[::-1] if reverse else rows
    results = rows[:1]
    for row in rows[1:]:
        results.append(fn(results[-1], row))
    results = results[::-1] if reverse else results
    return [torch.stack(parts, dim) for parts in zip(*results, strict=True)]


def of_operator(fn, xs, dim, reverse):
    return associative_scan(fn, tuple(xs), dim, reverse=reverse, combine_mode="pointwise")


def observed(call, xs, used):
    """The results at the positions ``used``, and the gradients of the inputs."""
    results = [x.sin() if x.is_floating_point() else x for x in call()]
    loss = sum(results[k].sum() * (k + 1) for k in used if results[k].is_floating_point())
    wanted = [x for x in xs if x.requires_grad]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    found = [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)]
    return [*(results[k] for k in used), *found]


def check(name, used=None, length=LENGTH, dim=1, reverse=False, dtype=torch.float64):
    fn, count = FUNCTIONS[name]
    xs = inputs(name, count, length, dtype)
    used = range(count) if used is None else used
    compiled = fxstack.compile(lambda *xs: of_operator(fn, xs, dim, reverse), fullgraph=True)
    expected = observed(lambda: by_loop(fn, xs, dim, reverse), xs, used)
    torch.testing.assert_close(observed(lambda: compiled(*xs), xs, used), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(name)


@pytest.mark.parametrize("used", [[0], [1], [2]])
def test_results_without_users(used):
    check("motion", used)


@pytest.mark.parametrize("length", [1, 2])
def test_short_scans(length):
    check("rotation", length=length)


def test_from_the_end():
    check("recurrence", reverse=True)


def test_along_the_last_dimension():
    check("recurrence", dim=2)
