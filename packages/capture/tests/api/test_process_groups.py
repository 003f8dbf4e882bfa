"""``torch.distributed``: questions about process groups are answered while tracing, collectives are functional ones.

Collectives without a functional equivalent end the graph once each.
"""

import pytest
import torch
from beside import breaks_beside_plain
from torch import distributed as dist
from torch.distributed import _functional_collectives as functional

from fxstack_capture import Unsupported, optimize

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch has no gloo"
)


@pytest.fixture
def group():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def asks(x):
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 0:
        return x + dist.get_rank() + dist.group.WORLD.size(), dist.group.WORLD.name()
    return x * 2


def reduces(x):
    dist.all_reduce(x)
    return functional.all_reduce(x + 1, "sum", dist.group.WORLD).wait() * 2


def gathers(x):
    rows = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, x * 2)
    dist.barrier()
    work = dist.broadcast(rows[0], 0, async_op=True)
    work.wait()
    return rows


def asks_of_a_group(x):
    own = dist.group.WORLD
    return x + dist.get_world_size(own), own == dist.group.WORLD, own != None  # noqa: E711 - the operator


def made(x, fn, *args, size=2, **kwargs):
    """A collective that writes into a new tensor."""
    output = torch.empty(size)
    assert fn(output, x * 2, *args, **kwargs) is None
    return output + 1


def reduced(x, *args, **kwargs):
    y = x * 2
    dist.all_reduce(y, *args, **kwargs)
    return y + 1


def in_place(x):
    dist.all_reduce(x[:1])
    dist.broadcast(x, src=0)
    return x + 1


def listed(x):
    rows = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, x)
    return rows


IN_ONE_GRAPH = {
    "asks": asks_of_a_group,
    "all_reduce": reduced,
    "all_reduce_max": lambda x: reduced(x, dist.ReduceOp.MAX),
    "all_reduce_of_a_group": lambda x: reduced(x, group=dist.group.WORLD),
    "in_place": in_place,
    "all_gather": listed,
    "all_gather_into_tensor": lambda x: made(x, dist.all_gather_into_tensor),
    "all_gather_base": lambda x: made(x, dist._all_gather_base),
    "reduce_scatter_tensor": lambda x: made(x, dist.reduce_scatter_tensor),
    "reduce_scatter_product": lambda x: made(x, dist.reduce_scatter_tensor, op=dist.ReduceOp.PRODUCT),
    "reduce_scatter_base": lambda x: made(x, dist._reduce_scatter_base),
    "all_to_all_single": lambda x: made(x, dist.all_to_all_single),
    "all_to_all_split": lambda x: made(x, dist.all_to_all_single, [2], [2]),
}
NOT_IN_ONE = {
    "async": lambda x: reduced(x, async_op=True),
    "premultiplied": lambda x: reduced(x, dist._make_nccl_premul_sum(2.0)),
    "complex": lambda x: reduced(x + 1j),
    "gradients": lambda x: reduced(x.requires_grad_(), dist.ReduceOp.SUM),
    "other_size": lambda x: made(x, dist.all_gather_into_tensor, size=3),
    "other_dtype": lambda x: made(x.double(), dist.all_gather_into_tensor),
    "stacked": lambda x: made(x, dist.all_gather_into_tensor, size=(1, 2)),
    "strided": lambda x: reduced(torch.ones(2, 3).T),
    "barrier": lambda x: (dist.barrier(), x + 1),
    "own_error": lambda x: reduced(x, 1, 2, 3, 4, 5),
}


def fails(x):
    y = x * 2
    dist.broadcast(y, src=7)
    return y


def two():
    return (torch.ones(2),)


@pytest.mark.parametrize(("program", "breaks"), [(asks, 0), (reduces, 0), (gathers, 3)])
def test_collectives(program, breaks, group):
    assert len(breaks_beside_plain(program, two, calls=1)) == breaks


@pytest.mark.parametrize("name", IN_ONE_GRAPH)
def test_collectives_in_one_graph(name, group):
    found, inputs = [], (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))
    expected = IN_ONE_GRAPH[name](inputs[0])
    graphs = []

    def count(module, _inputs):
        graphs.append(module)
        return module

    compiled = optimize(count, fullgraph=True)(IN_ONE_GRAPH[name])
    found.append(compiled(inputs[1]))
    torch.testing.assert_close((found[0], inputs[1]), (expected, inputs[0]))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", NOT_IN_ONE)
def test_other_collectives(name, group):
    with pytest.raises(Unsupported, match="unsupported-call"):
        optimize(fullgraph=True)(NOT_IN_ONE[name])(torch.ones(2))


def test_another_default_group():
    compiled = optimize()(reduced)
    for _ in range(2):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        assert compiled(torch.ones(2)).tolist() == [3, 3]
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group"):
        compiled(torch.ones(2))


def test_collectives_under_way_are_new_in_every_call(group):
    assert len(breaks_beside_plain(gathers, two, calls=12)) < 8


def test_collectives_that_fail(group):
    assert breaks_beside_plain(fails, two)[0] == "unsupported-call"


def test_groups_that_come_and_go():
    compiled = optimize()(asks)
    before = compiled(torch.ones(2))
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    within = compiled(torch.ones(2))
    dist.destroy_process_group()
    assert torch.equal(before, torch.full((2,), 2.0))
    assert torch.equal(within[0], torch.full((2,), 2.0))
    assert within[1] == "gloo"
    assert torch.equal(compiled(torch.ones(2)), before)
