"""``torch.distributed``: questions about process groups are answered while tracing, collectives end the graph once each."""

import pytest
import torch
from beside import breaks_beside_plain
from torch import distributed as dist
from torch.distributed import _functional_collectives as functional

from fxstack_capture import optimize

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


def fails(x):
    y = x * 2
    dist.broadcast(y, src=7)
    return y


def two():
    return (torch.ones(2),)


@pytest.mark.parametrize(("program", "breaks"), [(asks, 0), (reduces, 1), (gathers, 4)])
def test_collectives(program, breaks, group):
    assert len(breaks_beside_plain(program, two, calls=1)) == breaks


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
