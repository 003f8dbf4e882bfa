"""``check(fn, *inputs)``: trace, compile, run, and compare with eager in everything that can be observed."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import fxstack_inductor as fi
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_interchange.torch_facts.effects import BEGIN_RANGE, END_RANGE

FAST = fi.InductorOptions(optimization=1, use_cache=False, grain=16)
"""Quick to compile; threads share whatever they can."""
TABLE = fi.decompositions()
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 2e-5, torch.float64: 1e-10}


def trace(fn, *inputs, symbolic=False):
    """A functional ATen graph of ``fn``."""
    mode = "symbolic" if symbolic else "fake"
    raw = make_fx(lambda *args: fn(*args), tracing_mode=mode)(*inputs)
    functional = torch.func.functionalize(raw, remove="mutations")
    return make_fx(functional, decomposition_table=TABLE, tracing_mode=mode)(*inputs)


def copies(inputs):
    """The same tensors elsewhere, strides kept."""
    return [
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) if isinstance(x, torch.Tensor) else x
        for x in inputs
    ]


def assert_equal(actual, expected):
    assert len(actual) == len(expected)
    for got, want in zip(actual, expected):
        if not isinstance(want, torch.Tensor):
            assert got == want
            continue
        tolerance = TOLERANCE.get(want.dtype, 0)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        if want.numel() > 1:
            assert got.stride() == want.stride()


def check(fn, *inputs, symbolic=False, options=FAST, others=()):
    """Compile ``fn`` traced on ``inputs`` and compare on them and on each tuple in ``others``; returns the callable."""
    compiled = fi.compile_graph(trace(fn, *inputs, symbolic=symbolic), inputs, options)
    assert not [f for f in compiled.lowered.plan.program.fallbacks if f.defect]
    for args in (inputs, *others):
        expected = [x for x in pytree.tree_leaves(fn(*copies(args)))]
        assert_equal(compiled(*copies(args)), expected)
    return compiled


def check_gradients(fn, *inputs):
    """The same for the gradients of ``fn``'s sum with respect to all floating-point inputs."""

    def gradients(*values):
        values = [v.detach().requires_grad_(v.is_floating_point()) for v in values]
        result = fn(*values)
        wanted = [v for v in values if v.requires_grad]
        return torch.autograd.grad(result, wanted, torch.ones_like(result) * 0.5)

    graph = make_fx(gradients, decomposition_table=TABLE, tracing_mode="fake")(*inputs)
    compiled = fi.compile_graph(graph, inputs, FAST)
    assert_equal(compiled(*copies(inputs)), gradients(*inputs))
    return compiled


def kernels(compiled):
    return [s.kernel for s in compiled.lowered.plan.steps if isinstance(s, KernelStep)]


def externs(compiled):
    return [str(s.target) for s in compiled.lowered.plan.steps if isinstance(s, ExternCall)]


def fused(compiled):
    """Whether everything became one kernel and no call."""
    return len(kernels(compiled)) == 1 and not externs(compiled)


def with_range(graph_module, first, last):
    """``graph_module`` with a range of torch's profiler around the nodes from ``first`` to ``last``."""
    graph, by_name = graph_module.graph, {node.name: node for node in graph_module.graph.nodes}
    with graph.inserting_before(by_name[first]):
        begun = graph.call_function(BEGIN_RANGE, ("range", None))
    with graph.inserting_after(by_name[last]):
        graph.call_function(END_RANGE, (begun,))
    graph_module.recompile()
    return graph_module
