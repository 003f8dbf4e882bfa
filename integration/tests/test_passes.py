"""The passes of a whole compilation: the order of stages and passes, and names that tell them apart."""

import pytest
import torch

import fxstack
from fxstack_functionalize.passes import STAGES as FUNCTIONALIZE
from fxstack_inductor.passes import STAGES as INDUCTOR
from fxstack_interchange.passes import PassDone, observed
from fxstack_partition.passes import STAGES as PARTITION

STAGES = {**FUNCTIONALIZE, **PARTITION, **INDUCTOR}
CODE = ["lower", "schedule", "c"]


class Log:
    def __init__(self):
        self.seen = []

    def on_pass(self, done: PassDone):
        if done.stage != "capture":  # its attempts depend on the outcome of the one before
            self.seen.append((done.stage, done.name))
        assert done.text()


def step(x):
    return torch.nn.functional.gelu(x.mul(2)).softmax(-1)


def watched(x, **options):
    log = Log()
    with observed(log):
        result = fxstack.compile(step, options=options)(x)
        if result.requires_grad:
            result.sum().backward()
    torch.testing.assert_close(result, step(x))
    return log.seen


def passes_of(stages):
    return [(stage, done.name) for stage in stages for done in STAGES[stage]]


@pytest.mark.parametrize("partitioner", ["min_cut", "budget"])
def test_a_training_step(partitioner, tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    seen = watched(torch.randn(4, 8, requires_grad=True), partitioner=partitioner)
    if partitioner == "budget":  # its last pass runs the passes of extraction inside
        seen = [entry for entry in seen if entry[0] != "partition"]
    cut = "partition" if partitioner == "min_cut" else partitioner
    assert seen == passes_of(["functionalize", "joint", cut, *CODE, *CODE])


def test_a_graph_without_gradients(tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    seen = watched(torch.randn(4, 8))
    assert seen == passes_of(["functionalize", "inference", *CODE])


def test_stages_and_passes_have_names_of_their_own():
    assert len(STAGES) == len(FUNCTIONALIZE) + len(PARTITION) + len(INDUCTOR)
    for stage, passes in STAGES.items():
        names = [done.name for done in passes]
        assert len({*names}) == len(names), stage
