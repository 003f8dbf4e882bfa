"""Data, sharded data and tensor parallelism over two processes (gloo, CPU): training steps equal eager's."""

import multiprocessing
import os
import socket
import traceback

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)
STEPS = 3


def _layers():
    torch.manual_seed(0)
    hidden = [nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()]
    return nn.Sequential(nn.Linear(8, 32), *hidden, nn.Linear(32, 4))


def _mesh():
    return torch.distributed.device_mesh.init_device_mesh("cpu", (2,))


def replicated(compiled):
    module = nn.parallel.DistributedDataParallel(_layers())
    return module, compiled(module)


def replicated_around_compiled(compiled):
    module = nn.parallel.DistributedDataParallel(compiled(_layers()), bucket_cap_mb=0.001)
    return module, module


def sharded(compiled):
    from torch.distributed.fsdp import fully_shard

    module, mesh = _layers(), _mesh()
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module, compiled(module)


def fully_sharded(compiled):
    from torch.distributed.fsdp import FullyShardedDataParallel

    module = FullyShardedDataParallel(_layers(), device_id=torch.device("cpu"), use_orig_params=True)
    return module, compiled(module)


def split_by_columns_and_rows(compiled):
    from torch.distributed.tensor import parallel

    plan = {"0": parallel.ColwiseParallel(), "6": parallel.RowwiseParallel()}
    layers = _layers()
    for k in range(1, 6):
        layers[k] = nn.GELU()
    module = parallel.parallelize_module(layers, _mesh(), plan)
    return module, compiled(module)


def _losses(make, compiled, rank):
    module, call = make(compiled)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=False)
    found = []
    for step in range(STEPS):
        torch.manual_seed(step if make is split_by_columns_and_rows else 2 * step + rank)
        loss = call(torch.randn(6, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


WAYS = (replicated, replicated_around_compiled, sharded, fully_sharded, split_by_columns_and_rows)


def _work(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    import fxstack

    found = {}
    try:
        for make in WAYS:
            sides = (lambda module: module), fxstack.compile
            found[make.__name__] = [_losses(make, side, rank) for side in sides]
    except Exception:  # noqa: BLE001 - for the test to show
        found["error"] = traceback.format_exc()
    results.put(found)
    results.close()
    results.join_thread()
    os._exit(0)  # gloo's threads wait for the other process


pytestmark = pytest.mark.alone  # two processes beside that of the test


@pytest.fixture(scope="module")
def losses():
    """For each process, the losses in eager and compiled by the way of training."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_work, args=(rank, port, results)) for rank in range(2)]
    for worker in workers:
        worker.start()
    try:
        return [results.get(timeout=240) for _ in workers]
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.parametrize("way", [make.__name__ for make in WAYS])
def test_training_steps_equal_eager(losses, way):
    for process in losses:
        assert "error" not in process, process["error"]
        eager, compiled = process[way]
        assert len(eager) == STEPS
        assert compiled == pytest.approx(eager, rel=1e-4)
