"""Values saved in a smaller dtype come back bit for bit; others are saved as they are."""

import pytest
import torch
import torch.nn.functional as F
from joint_programs import rand
from joints import compare, trace_joint

from fxstack_partition import PartitionOptions, check_partition, explain, partition
from fxstack_partition.joint.narrow import narrow_dtype


def mask(x):
    return (torch.bernoulli(torch.full_like(x, 0.5)).detach() * x).sum(0) ** 2


def permuted_mask(x):
    return (torch.bernoulli(torch.full_like(x, 0.5)).t() * x.t()) ** 2


def pool(x):
    return F.max_pool2d(x, 2).sin()


def taken(operator):
    return lambda x: operator(x).sin()


CASES = {
    "bernoulli": (mask, (8, 16), torch.bool),
    "bernoulli_permuted": (permuted_mask, (8, 16), torch.bool),
    "pool": (pool, (2, 3, 8, 8), torch.int8),
    "pool_of_larger_planes": (pool, (1, 1, 16, 16), torch.int16),
    "adaptive": (lambda x: F.adaptive_max_pool2d(x, 2).sin(), (1, 3, 8, 8), torch.int8),
    "sort": (taken(lambda x: x.sort(-1)[0]), (4, 9), torch.int8),
    "sort_along_another": (taken(lambda x: x.sort(0)[0]), (300, 2), torch.int16),
    "topk": (taken(lambda x: x.topk(3, 0)[0]), (200, 4), torch.int16),
    "max": (taken(lambda x: x.max(1)[0]), (4, 128), torch.int8),
    "min": (taken(lambda x: x.min(0)[0]), (129, 4), torch.int16),
}


def saved_dtypes(part):
    return {n.meta["val"].dtype for n in part.backward.graph_module.graph.find_nodes(op="placeholder")}


@pytest.mark.parametrize("partitioner", ["save_all", "min_cut", "budget"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_narrow_comes_back(name, partitioner):
    fn, shape, dtype = CASES[name]
    inputs = (rand(*shape),)
    joint = trace_joint(fn, *inputs)
    part = partition(joint, partitioner, PartitionOptions(budget=1.0))
    assert dtype in saved_dtypes(part)
    check_partition(joint, part)
    compare(joint, part, inputs)
    wide = partition(joint, partitioner, PartitionOptions(budget=1.0, narrow=False))
    assert dtype not in saved_dtypes(wide)


def test_the_reason_says_so():
    part = partition(trace_joint(pool, rand(1, 2, 8, 8)))
    (index,) = [item for item in explain(part).saved if "narrow" in item.rule]
    assert index.rule.endswith("narrow: saved as int8, which holds its values exactly")
    assert index.bytes == 32


def test_what_the_caller_holds_is_saved_as_it_is():
    part = partition(trace_joint(lambda x: F.max_pool2d(x, 2, return_indices=True), rand(1, 2, 8, 8)))
    assert torch.int8 not in saved_dtypes(part)


def test_symbolic_planes_may_be_large():
    joint = trace_joint(pool, rand(2, 3, 8, 8), dynamic=True)
    found = [narrow_dtype(n) for n in joint.graph_module.graph.nodes]
    assert set(found) == {None}


def test_masks_of_symbolic_sizes_are_bool():
    inputs = (rand(8, 16),)
    joint = trace_joint(mask, *inputs, dynamic=True)
    part = partition(joint)
    assert torch.bool in {getattr(n.meta["val"], "dtype", None) for n in placeholders(part)}
    check_partition(joint, part)
    compare(joint, part, inputs)


def placeholders(part):
    return part.backward.graph_module.graph.find_nodes(op="placeholder")


def test_a_position_in_the_whole_tensor_is_not_taken_for_one_along_a_dimension():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(300, 2, device="meta")
    for args, dtype in (((x,), None), ((x, 1), torch.int8), ((x, 0), torch.int16)):
        node = graph.call_function(torch.ops.aten.argmax.default, args)
        node.meta["val"] = torch.ops.aten.argmax.default(x.meta["val"], *args[1:])
        assert narrow_dtype(node) is dtype


def test_another_conversion_is_no_widening():
    joint = trace_joint(pool, rand(1, 2, 8, 8))
    part = partition(joint)
    graph = part.backward.graph_module.graph
    (wide,) = graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
    wide.kwargs = {"dtype": torch.int32}
    with pytest.raises(ValueError, match="breaks rule 'topology'"):
        check_partition(joint, part)
