"""``untyped_storage()`` and ``data_ptr()`` in compiled functions."""

import pytest
import torch

import fxstack_capture

BASE = torch.arange(12.0)
PAIRS = [
    (BASE[:3], BASE[3:6]),
    (BASE[:3], torch.ones(3)),
    (torch.ones(3), torch.ones(3)),
    (BASE[:3], BASE[:3]),
    (BASE, BASE),
    (torch.ones(1, 0), torch.ones(1, 0)),
]


def distinct(*tensors):
    seen = set()
    return sum(not (t.data_ptr() in seen or seen.add(t.data_ptr())) for t in tensors)


def replaced(x, y):
    x = x[:]
    x.data = y
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


PROGRAMS = {
    "sizes": lambda x, y: (
        x.untyped_storage().nbytes(),
        y.untyped_storage().size(),
        len(y.untyped_storage()),
    ),
    "new": lambda x, _: (x + 1).reshape(1, -1).expand(2, -1).untyped_storage().nbytes(),
    "addresses": lambda x, y: x.data_ptr() == y.data_ptr(),
    "storages": lambda x, y: x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(),
    "identity": lambda x, y: x.untyped_storage() is y.untyped_storage(),
    "equality": lambda x, y: x.untyped_storage() == y.untyped_storage(),
    "difference": lambda x, _: x[-1:].data_ptr() - x.data_ptr(),
    "alignment": lambda x, _: x.data_ptr() % 16 == 0,
    "returned": lambda x, _: x.untyped_storage().data_ptr() and x.data_ptr(),
    "device": lambda x, _: x.untyped_storage().device,
    "distinct": lambda x, y: distinct(x, y, x[:]),
    "replaced": replaced,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    fn = PROGRAMS[name]
    compiled = fxstack_capture.optimize(fullgraph=True)(lambda x, y: (fn(x, y), x + 1))
    for pair in PAIRS:
        assert compiled(*pair)[0] == fn(*pair)


def test_a_storage_leaves_the_graph():
    compiled = fxstack_capture.optimize(fullgraph=True)(lambda x: (x.untyped_storage(), x + 1))
    assert compiled(BASE)[0].data_ptr() == BASE.data_ptr()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.untyped_storage()[0], x + 1),
        lambda x: (list(x.untyped_storage()), x + 1),
        lambda x: (torch.UntypedStorage.nbytes(x.untyped_storage()), x + 1),
        lambda x: ((x + 1).data_ptr() == x.data_ptr(), x + 1),
        lambda x: (x.untyped_storage().resize_(64).nbytes(), x + 1),
    ],
)
def test_other_uses_break_the_graph(fn):
    assert fxstack_capture.optimize()(fn)(torch.ones(4))[0] == fn(torch.ones(4))[0]
