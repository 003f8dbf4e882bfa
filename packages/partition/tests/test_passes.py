"""The passes of the partitioners: their order, examples and texts."""

import pass_examples
import pytest
import torch
from joint_programs import PROGRAMS, rand
from joints import trace_joint
from pass_examples import PassLog

from fxstack_interchange.passes import StoppedAfterPass, observed
from fxstack_partition import partition
from fxstack_partition.passes import STAGES

NAMES = {name: [step.name for step in passes] for name, passes in STAGES.items()}
PARTITIONERS = {"partition": "min_cut", "budget": "budget", "ilp": "ilp"}


@pytest.mark.parametrize("stage", STAGES)
def test_examples(stage):
    def example(name, fn):
        joint = trace_joint(fn, rand(3))
        print(pass_examples.changed(stage, name, lambda: partition(joint, PARTITIONERS[stage])))

    # Passes that stages share have examples of the first stage.
    own = [step for step in STAGES[stage] if stage == "partition" or step.name not in NAMES["partition"]]
    assert pass_examples.failures(own, {"example": example}) == []


def cut(log, stage):
    fn, inputs = PROGRAMS["mlp"]
    joint = trace_joint(fn, *inputs())
    with observed(log):
        return partition(joint, PARTITIONERS[stage])


@pytest.mark.parametrize("stage", STAGES)
def test_an_observer_sees_each_pass_in_order(stage):
    log = PassLog()
    cut(log, stage)
    assert [name for seen, name, _, _ in log.seen if seen == stage] == NAMES[stage]


@pytest.mark.parametrize("stage", STAGES)
def test_a_pass_changes_the_text_or_says_why_not(stage):
    log = PassLog()
    cut(log, stage)
    seen = [entry for entry in log.seen if entry[0] == stage]
    for (_, _, before, _), (_, name, after, why) in zip(seen, seen[1:], strict=False):
        assert (before == after) == (why is not None), name


@pytest.mark.parametrize(("stage", "name"), [(s, n) for s, names in NAMES.items() for n in names])
def test_a_stopped_stage_leaves_nothing_behind(stage, name):
    with pytest.raises(StoppedAfterPass):
        cut(PassLog(stop=name), stage)
    assert str(cut(PassLog(), stage).saved) == str(cut(PassLog(), stage).saved)
    assert torch.is_grad_enabled()
