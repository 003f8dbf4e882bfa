"""Sizes that eager refuses are refused with eager's exception, in one graph, of known and of symbolic sizes."""

import pytest
import torch
import torch.nn.functional as F

import fxstack_capture

rand, ints = torch.rand, torch.tensor


def apart(x, y):
    return torch.ops.aten.index_put(x, (ints([0, 1]), None, ints([0, 1])), y)


REFUSED = {
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 1, 4, 10), rand(16, 16), rand(16, 2)),
    "select_scatter": (lambda x, y: x.select_scatter(y, 1, 4), rand(16, 16), rand(1)),
    "diagonal_scatter": (lambda x, y: x.diagonal_scatter(y), rand(9, 10), rand(10)),
    "soft_margin_loss": (F.soft_margin_loss, rand(5), rand(5, 5)),
    "cross_entropy": (F.cross_entropy, rand(2, 3, 4, 4), torch.zeros(2, 1, 4, dtype=torch.long)),
    "class weights": (
        lambda x, y: F.cross_entropy(x, y, x.new_ones(1)),
        rand(2, 3, 4, 4),
        torch.zeros(2, 4, 4, dtype=torch.long),
    ),
    "index_add": (lambda x, y: x.index_add(0, ints([0, 1]), y), rand(3, 4), rand(2, 1)),
    "index_put": (lambda x, y: x.index_put((ints([0, 1]),), y), rand(3, 4), rand(3, 4)),
    "apart": (apart, rand(3, 4, 5), rand(4, 2)),
    "assignment": (lambda x, y: x.__setitem__(ints([0, 1]), y), rand(3, 4), rand(3, 4)),
    "masks": (lambda x, y: x[y > 1], rand(3), rand(2)),
    "index_select": (lambda x, y: x.index_select(0, y.long()), rand(3, 4), rand(1, 1)),
    "interpolate": (lambda x, y: F.interpolate(x, size=(0, 3)) + y, rand(1, 3, 4, 4), rand(1)),
}
TAKEN = {
    "an empty batch": (lambda x, y: F.interpolate(x, size=(2, 3)) + y, rand(0, 3, 4, 4), rand(1)),
    "index_put": (apart, rand(3, 4, 5), rand(2, 4)),
    "one value": (lambda x, y: x.index_put((ints([0, 1]),), y), rand(3, 4), rand(1)),
    "one row": (lambda x, y: x.index_copy(0, ints([1]), y), rand(3, 4), rand(1, 4)),
    "mask": (lambda x, y: x.index_put((y > 2,), x.new_zeros(())), rand(3, 4), rand(3, 4)),
    "weighted": (
        lambda x, y: F.cross_entropy(x, y, x.new_ones(3)),
        rand(2, 3, 4, 4),
        torch.zeros(2, 4, 4, dtype=torch.long),
    ),
}


def compiled(fn, dynamic):
    return fxstack_capture.optimize(fullgraph=True, dynamic=dynamic)(fn)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, dynamic):
    fn, x, y = REFUSED[name]
    if name == "interpolate" and dynamic:
        pytest.skip("torch's Python kernel for symbolic sizes is another operator")
    with pytest.raises((RuntimeError, IndexError)) as eager:
        fn(x, y)
    with pytest.raises(type(eager.value)) as ours:
        compiled(fn, dynamic)(x, y)
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TAKEN)
def test_taken(name, dynamic):
    fn, x, y = TAKEN[name]
    torch.testing.assert_close(compiled(fn, dynamic)(x, y), fn(x, y))


def test_a_symbolic_size_is_guarded():
    fn = compiled(lambda x, y: x.index_put((ints([0, 1]),), y), True)
    fn(rand(3, 4), rand(2, 4))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        fn(rand(3, 4), rand(3, 4))


def test_tensors_that_overlap_are_refused_before_their_sizes():
    def fn(x):
        y = x * 2
        try:
            y[-1:] += y
        except RuntimeError as error:
            return str(error)
        return y

    message = fxstack_capture.optimize()(fn)(rand(2))
    assert message == fn(rand(2))
    assert "refer to a single memory location" in message
