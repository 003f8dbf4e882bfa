"""Tags on modules reach the nodes that were called in them; the innermost tagged module decides."""

import torch
from joint_programs import rand
from joints import trace_joint

from fxstack_partition import PartitionOptions, analyze, by_module, partition
from fxstack_partition.policy.modules import modules_around

TRACE = """  File "torch/nn/modules/module.py", line 1789, in Module._call_impl
    return forward_call(*args, **kwargs)
  File "model.py", line 3, in make.<locals>.Outer.forward
    y = self.inner(x)
  File "model.py", line 9, in Inner.forward
    return x.sin()
"""


def node(**meta):
    made = torch.fx.Graph().placeholder("x")
    made.meta.update(meta)
    return made


def test_classes_are_read_off_the_traceback():
    assert modules_around(node(stack_trace=TRACE)) == [("Outer",), ("Inner",)]
    assert modules_around(node()) == []


def test_paths_and_classes_are_read_off_the_module_stack():
    stack = {"a": ("layers", "package.Stack"), "b": ("layers.0", torch.nn.Linear)}
    found = modules_around(node(nn_module_stack=stack, stack_trace=TRACE))
    assert found == [("layers", "Stack"), ("layers.0", "Linear")]


def test_the_innermost_tag_decides():
    both = by_module({"Outer": "must_recompute", "Inner": "must_save"})
    assert both(node(stack_trace=TRACE)) == "must_save"
    assert by_module({"Out*": "must_recompute"})(node(stack_trace=TRACE)) == "must_recompute"
    assert by_module({"Other": "must_save"})(node(stack_trace=TRACE)) is None


def test_partitioners_obey():
    joint = trace_joint(lambda x: x.sin().exp().cos(), rand(64))
    for each in analyze(joint).forward:
        each.meta["stack_trace"] = TRACE
    for name in ("min_cut", "budget", "sac"):
        kept, again = (
            partition(joint, name, PartitionOptions(policy=by_module({"Inner": tag})))
            for tag in ("must_save", "must_recompute")
        )
        assert not {"sin", "exp"} & set(kept.recomputed)
        assert {"sin", "exp"} <= set(again.recomputed)
