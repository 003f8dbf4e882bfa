"""The simulated step against a direct count, and against torch's own allocations."""

import pytest
import torch
from joint_programs import PROGRAMS, rand
from joints import symbol_values, trace_joint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fxstack_interchange import OutputKind
from fxstack_partition import PartitionOptions, StageMemory, corpus, partition, simulate


class Allocated(TorchDispatchMode):
    """Follows the storages that operators make and drop; records what is alive after each operator."""

    def __init__(self, ignored):
        super().__init__()
        self.alive = {}
        self.peak = 0
        self.ignored = {t.untyped_storage()._cdata for t in ignored}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.note(out)
        return out

    def note(self, values):
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self.ignored and key not in self.alive:
                    self.alive[key] = storage._weak_ref(), storage.nbytes()
        self.alive = {
            k: (ref, size) for k, (ref, size) in self.alive.items() if not torch.UntypedStorage._expired(ref)
        }
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))


def measured_peak(joint, part, inputs):
    """Run both graphs, releasing what the caller would release, under ``Allocated``."""
    symbols = symbol_values(joint, inputs)
    specs = part.forward.signature.outputs
    with Allocated(inputs) as follow:
        out = part.forward.graph_module(*symbols, *inputs)
        results = [v for s, v in zip(specs, out) if s.kind is not OutputKind.SAVED]
        saved = [v for s, v in zip(specs, out) if s.kind is OutputKind.SAVED]
        forward = follow.peak
        tangents = [torch.ones_like(r) for r in results]
        follow.peak = 0
        arguments = [*saved, *tangents]
        del saved, tangents, out
        Boxed(part.backward.graph_module).run_boxed(arguments)
    return forward, follow.peak


class Boxed(torch.fx.Interpreter):
    def run_boxed(self, arguments):
        """Run and drop each argument after its last use, as fx's own interpreter does with values."""
        values = list(arguments)
        arguments.clear()
        self.args_iter = iter(())
        env = {}
        nodes = list(self.module.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        env.update(zip(placeholders, values))
        values.clear()
        for node in nodes:
            if node.op == "placeholder":
                if not node.users:
                    env.pop(node)
                continue
            self.env = env
            result = self.run_node(node)
            if node.op == "output":
                return result
            env[node] = result
            del result
            for dead in self.user_to_last_uses.get(node, ()):
                env.pop(dead, None)
            if not node.users:
                env.pop(node)
        return None


@pytest.mark.parametrize("partitioner", ["save_all", "min_cut"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_peak_is_what_torch_allocates(program, partitioner):
    fn, make = PROGRAMS[program]
    inputs = make()
    joint = trace_joint(fn, *inputs)
    part = partition(joint, partitioner)
    timeline = simulate(part)
    with torch.no_grad():
        forward, backward = measured_peak(joint, part, [x.detach() for x in inputs])
    assert timeline.peak_of("forward") == pytest.approx(forward, rel=0.1, abs=64)
    assert timeline.peak_of("backward") == pytest.approx(backward, rel=0.1, abs=64)


def test_views_cost_nothing_and_keep_their_base():
    def fn(x):
        big = x.exp()
        return big.view(4, 4).sin().sum()

    part = partition(trace_joint(fn, rand(16)), "save_all")
    assert simulate(part).saved_bytes == 64


def test_saved_parameters_and_inputs_are_not_counted():
    part = partition(trace_joint(lambda x, w: x @ w, rand(3, 4), rand(4, 5)))
    assert simulate(part).saved_bytes == 0


def test_arguments_that_the_caller_holds_live_to_the_end():
    part = partition(corpus.load("stack_4"), "save_all")
    holding = simulate(part, release=False)
    assert holding.peak > simulate(part).peak
    gradients = holding.moments[-1].bytes - simulate(part).moments[-1].bytes
    assert gradients == pytest.approx(holding.saved_bytes, rel=0.05)


def test_a_described_runtime_is_what_counts():
    part = partition(corpus.load("stack_4"))

    def described(stage, _options):
        name = "alpha" if stage is part.forward else "omega"
        return StageMemory(((name, 100),), retained=7 if name == "alpha" else 50)

    timeline = simulate(part, PartitionOptions(runtime=described))
    assert [(m.name, m.stage) for m in timeline.moments] == [("alpha", "forward"), ("omega", "backward")]
    assert timeline.moments[0].bytes == 150
    assert timeline.peak > timeline.saved_bytes + 150
    assert timeline.saved_bytes == simulate(part).saved_bytes


def test_what_a_described_backward_lets_go_of_is_freed_unless_others_hold_it():
    """sin and exp are saved; exp is a result as well."""
    x = torch.randn(1000, requires_grad=True)
    part = partition(trace_joint(lambda x: (x.sin().sin().exp(), x * 1), x), "save_all")
    given = part.backward.graph_module.graph.find_nodes(op="placeholder")
    released = {node.name: 1 for node in given}

    def described(stage, _options):
        is_forward = stage is part.forward
        return StageMemory((("a", 0), ("b", 0)), released={} if is_forward else released)

    before, after = (m.bytes for m in simulate(part, PartitionOptions(runtime=described)).moments[2:])
    assert before - after == simulate(part).saved_bytes > 0


def test_a_timeline_names_its_peak():
    timeline = simulate(partition(corpus.load("softmaxes")))
    moment = max(timeline.moments, key=lambda m: m.bytes)
    assert timeline.peak == moment.bytes
    assert timeline.peak_at == moment.name
    assert {m.stage for m in timeline.moments} == {"forward", "backward"}
