"""Joint graphs of torch whose random numbers are functions of seeds and offsets (``functionalize_rng_ops``)."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Interpreter
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_interchange import InputKind, load, save, verify
from fxstack_partition import (
    JointGraph,
    JointGraphError,
    PartitionOptions,
    as_partition_fn,
    check_partition,
    partition,
)

NAMES = ("primals_1", "primals_2", "tangents_1")
SEEDS = ("fwd_seed_1", "fwd_base_offset_1", "bwd_seed_1", "bwd_base_offset_1")
philox = torch.ops.rngprims.philox_rand


def joint_module():
    """What torch hands to a partition_fn: the seeds behind the tangents, new offsets behind the results."""

    def draw(like, seed, offset):
        return philox(list(like.shape), seed, offset, None, torch.device("cpu"), torch.float32)

    def joint(x, w, tangent, *seeds):
        noise, used = draw(x, *seeds[:2])
        mask = noise > 0.5
        h = x * mask * 2
        again, used_again = draw(h, *seeds[2:])
        grad = (tangent + again) @ w.t() * mask * 2
        new = seeds[1] + used, seeds[3] + used_again
        return (h @ w).sin(), new[0], grad, h.t() @ tangent, new[1]

    with FakeTensorMode():
        floats = [torch.empty(8, 8) for _ in range(3)]
        seeds = [torch.empty((), dtype=torch.int64) for _ in range(4)]
        module = make_fx(joint)(*floats, *seeds)
    for node, name in zip(module.graph.find_nodes(op="placeholder"), (*NAMES, *SEEDS), strict=True):
        node._rename(name)
    module.recompile()
    return module


class Run(Interpreter):
    """Runs a graph with a philox of its own: torch's needs a GPU."""

    def call_function(self, target, args, kwargs):
        if target is philox.default:
            shape, seed, offset = args[:3]
            torch.manual_seed(int(seed) * 1000 + int(offset))
            return torch.rand(shape), torch.tensor(4)
        return super().call_function(target, args, kwargs)


def run(module, *args):
    return list(Run(module).run(*args))


def values():
    torch.manual_seed(0)
    return [torch.randn(8, 8) for _ in range(3)], [torch.tensor(i) for i in (3, 4, 5, 8)]


def joint_graph():
    return JointGraph.from_aot(joint_module(), num_fwd_outputs=2)


def test_seeds_are_inputs_of_their_stages(tmp_path):
    joint = joint_graph()
    verify(joint)
    assert [s.name for s in joint.signature.inputs] == [*NAMES[:2], *SEEDS[:2], *NAMES[2:], *SEEDS[2:]]
    save(joint, tmp_path / "joint.fxg")
    verify(load(tmp_path / "joint.fxg"))


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget", "ilp", "sac"])
def test_partitions_compute_the_joint_graph(name):
    part = partition(joint_graph(), name, PartitionOptions(budget=0.0))
    verify(part.forward)
    verify(part.backward)
    check_partition(joint_graph(), part)
    states = part.backward.signature.inputs_of(InputKind.RNG_STATE)
    assert [s.name for s in states] == list(SEEDS[2:])
    floats, seeds = values()
    expected = run(joint_module(), *floats, *seeds)
    first = run(part.forward.graph_module, *floats[:2], *seeds[:2])
    second = run(part.backward.graph_module, *first[2:], *floats[2:], *seeds[2:])
    torch.testing.assert_close([*first[:2], *second], expected, rtol=0, atol=0)


def test_what_is_drawn_may_be_drawn_again_from_its_seed():
    part = partition(joint_graph(), "min_cut")
    assert "philox_rand" in part.recomputed
    assert "gt" not in part.saved


@pytest.mark.parametrize("name", ["save_all", "min_cut"])
def test_modules_for_torch_have_its_order(name):
    forward, backward = as_partition_fn(name)(joint_module(), [], num_fwd_outputs=2)
    given = [n.name for n in forward.graph.find_nodes(op="placeholder")]
    assert given == [*NAMES[:2], *SEEDS[:2]]
    late = [n.name for n in backward.graph.find_nodes(op="placeholder")][-3:]
    assert late == [*NAMES[2:], *SEEDS[2:]]
    floats, seeds = values()
    first = run(forward, *floats[:2], *seeds[:2])
    second = run(backward, *first[2:], *floats[2:], *seeds[2:])
    expected = run(joint_module(), *floats, *seeds)
    torch.testing.assert_close([*first[:2], *second], expected, rtol=0, atol=0)


def test_states_of_generators_are_refused():
    module = joint_module()
    module.graph.find_nodes(op="placeholder")[3]._rename("fwd_rng_state_0")
    with pytest.raises(JointGraphError, match="turn graphsafe_rng_functionalization off"):
        JointGraph.from_aot(module, num_fwd_outputs=2)
