"""``install`` and ``FXSTACK=1``: ``torch.compile`` and what belongs to it mean fxstack, for programs that do not know it."""

import gc
import inspect
import os
import re
import subprocess
import sys
import textwrap
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

import fxstack
from fxstack import CompileLog

X = torch.randn(3, 4)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, scale=2.0):
        return torch.relu(self.linear(x)) * scale

    def own(self):
        return type(self).__name__


@pytest.fixture
def installed():
    fxstack.install()
    yield
    fxstack.uninstall()


def fresh(program, **variables):
    """The output of a program in a process of its own, with ``fxstack.pth`` executed as an installation does."""
    start = (Path(fxstack.__file__).parents[1] / "fxstack.pth").read_text()
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def log_of(compiled) -> CompileLog:
    return fxstack.compile_log(compiled)


# --- installing ----------------------------------------------------------------------------------


def test_the_variable_installs_when_torch_is_imported():
    program = """
        import sys
        print("fxstack" in sys.modules)
        import torch
        print(torch.compile.__wrapped__.__globals__["__name__"], "torch._dynamo" in sys.modules)
        compiled = torch.compile(torch.nn.Linear(2, 2))
        compiled(torch.ones(1, 2))
        import fxstack
        print(fxstack.compile_log(compiled).graph_count, "torch._dynamo" in sys.modules)
        import torch._dynamo
        print(isinstance(compiled, torch._dynamo.OptimizedModule))
    """
    assert fresh(program, FXSTACK="1") == ["False", "fxstack.dropin.entrances", "False", "1", "False", "True"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [({"FXSTACK": "1", "FXSTACK_VERBOSE": "1"}, 1), ({"FXSTACK": "1"}, 0), ({"FXSTACK_VERBOSE": "1"}, 0)],
)
def test_a_line_says_that_fxstack_runs_on_request(variables, said):
    program = """
        import io, sys
        real, sys.stderr = sys.stderr, io.StringIO()
        import torch
        print(sys.stderr.getvalue().count("runs on fxstack"))
    """
    assert fresh(program, **{"FXSTACK": "", "FXSTACK_VERBOSE": "", **variables}) == [str(said)]


@pytest.mark.parametrize(("value", "active"), [("True", "True"), ("on", "True"), ("OFF", "False")])
def test_other_values_of_the_variable(value, active):
    program = """
        import torch
        print(torch.compile.__globals__["__name__"].startswith("fxstack"))
    """
    assert fresh(program, FXSTACK=value, PYTHONWARNINGS="error") == [active]


@pytest.mark.parametrize(
    "first", ["fxstack", "fxstack.log", "fxstack_capture", "fxstack_interchange", "fxstack_partition"]
)
def test_a_package_of_ours_may_be_imported_before_torch(first):
    program = f"""
        import {first}
        import fxstack, torch
        print(fxstack.is_installed(), torch.compile.__globals__["__name__"].startswith("fxstack"))
    """
    assert fresh(program, FXSTACK="1", PYTHONWARNINGS="error") == ["True", "True"]


def test_an_unknown_value_warns_when_torch_is_imported():
    program = """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        print(*(w.message for w in caught if "FXSTACK" in str(w.message)), sep="|")
        print(torch.compile.__globals__["__name__"])
    """
    words = " ".join(fresh(program, FXSTACK="maybe"))
    assert words == (
        "the environment variable FXSTACK is 'maybe', which is no known value: torch.compile stays torch's own. Set 1, "
        "true, yes, on to run it on fxstack, or 0, false, no, off for torch's own. torch"
    )


def test_without_the_variable_nothing_is_imported():
    program = """
        import sys
        import torch
        print("fxstack" in sys.modules, "fxstack_startup" in sys.modules, torch.compile.__globals__["__name__"])
    """
    assert fresh(program, FXSTACK="0") == ["False", "False", "torch"]


def test_except_clauses_name_torchs_classes():
    program = """
        import sys
        import torch
        kept = []
        try:
            torch.compile(lambda x: x + 1, backend=lambda graph, inputs: 1 / 0)(torch.ones(2))
        except RuntimeError as error:
            kept.append(error)
        print("torch._dynamo" in sys.modules)
        try:
            raise kept[0]
        except torch._dynamo.exc.BackendCompilerFailed as error:
            print(error is kept[0], type(error.inner_exception) is ZeroDivisionError)
        try:
            torch.compile(torch.sin, backend="none like this")
        except torch._dynamo.exc.InvalidBackend as error:
            print(isinstance(error, ValueError))
    """
    assert fresh(program, FXSTACK="1") == ["False", "True", "True", "True"]


@pytest.mark.parametrize(
    "call",
    [
        "while_loop(lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),))",
        "flex_attention(q, q, q, score_mod=lambda s, *_: s * 2)",
    ],
)
def test_operators_that_torch_compiles_are_torchs_and_are_reset(call):
    program = f"""
        import torch
        from torch._dynamo import convert_frame
        from torch._higher_order_ops import while_loop
        from torch.nn.attention.flex_attention import flex_attention
        q = torch.ones(1, 1, 4, 8)
        {call}
        print(convert_frame.FRAME_COUNTER > 0)
        torch._dynamo.reset()
        print(convert_frame.FRAME_COUNTER)
    """
    assert fresh(program, FXSTACK="1") == ["True", "0"]


def test_uninstall_gives_torch_its_compiler_back():
    import torch._dynamo

    names = [
        (torch, "compile"),
        *((torch._dynamo, name) for name in ("optimize", "explain", "reset", "OptimizedModule")),
        *((torch._dynamo.eval_frame, name) for name in ("optimize", "OptimizedModule")),
    ]
    before = [getattr(module, name) for module, name in names]
    fxstack.install()
    fxstack.install()
    assert fxstack.is_installed()
    assert all(getattr(module, name) is not old for (module, name), old in zip(names, before, strict=True))
    fxstack.uninstall()
    fxstack.uninstall()
    assert not fxstack.is_installed()
    assert [getattr(module, name) for module, name in names] == before


@pytest.mark.usefixtures("installed")
def test_modules_compile_in_place():
    net = Net()
    net.compile(backend="eager")
    assert torch.equal(net(X), net.forward(X))
    assert log_of(net._compiled_call_impl).graph_count == 1


@pytest.mark.usefixtures("installed")
def test_entrances_of_torchs_compiler():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    fn = torch._dynamo.optimize(counter, nopython=True)(lambda x: x.sin() + 1)
    fn(X)
    assert (counter.frame_count, counter.op_count) == (1, 2)
    torch._dynamo.reset()
    fn(X)
    assert counter.frame_count == 2
    explained = torch._dynamo.explain(lambda x: x.sin() + 1)(X)
    assert (explained.graph_count, explained.graph_break_count, explained.op_count) == (1, 0, 2)
    assert {"inductor", "eager", "cudagraphs"} <= set(torch.compiler.list_backends())


@pytest.mark.parametrize("name", sorted({*torch._dynamo.__all__, *torch.compiler.__all__}))
def test_the_documentation_says_what_becomes_of_every_public_name(name):
    text = (Path(__file__).parents[2] / "docs/drop-in.md").read_text()
    assert re.search(rf"`(torch\.)?(compiler\.|_dynamo\.)?{name}(\(True\))?`", text)


def in_each_step(how):
    """The number of graphs of a function that is compiled in each of three steps."""

    def step(x, scale):
        return x.sin() * scale

    def scaled(scale):
        return lambda x: x.sin() * scale

    class Held(torch.nn.Module):
        def part(self, x):
            return x.cos()

    made = {
        "function": lambda: (step, 2.0),
        "closure": lambda: (scaled(torch.full((4,), 2.0)),),
        "method": lambda: (Held().part,),
    }[how]
    logs = []
    for _ in range(3):
        fn, *rest = made()
        compiled = torch.compile(fn, backend="eager")
        torch.testing.assert_close(compiled(X, *rest), fn(X, *rest))
        logs.append(log_of(compiled))
    assert all(log is logs[0] for log in logs)
    return logs[0].graph_count


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("how", ["function", "closure", "method"])
def test_a_function_compiled_in_each_step_is_compiled_once(how):
    assert in_each_step(how) == 1


@pytest.mark.usefixtures("installed")
def test_other_arguments_isolation_and_reset_compile_anew():
    def fn(x):
        return x.sin()

    def logs(**arguments):
        compiled = torch.compile(fn, **{"backend": "eager", **arguments})
        compiled(X)
        return log_of(compiled)

    first = logs()
    assert logs(dynamic=True) is not first
    assert logs(backend="aot_eager") is not first
    assert logs(isolate_recompiles=True) is not first
    assert logs() is first
    torch._dynamo.reset()
    assert logs() is not first


@pytest.mark.usefixtures("installed")
def test_what_several_calls_share_does_not_keep_their_functions():
    def scaled(scale):
        return lambda x: x * scale

    kept = torch.ones(4)
    compiled = torch.compile(scaled(kept), backend="eager")
    compiled(X)
    gone = weakref.ref(kept)
    del kept, compiled
    gc.collect()
    assert gone() is None


def test_run_compiles_nothing_more(installed):
    compiled = torch.compile(Net(), backend="eager")
    compiled(X)
    running = torch._dynamo.run(compiled)
    assert running(X[0]).shape == (4,)
    with torch._dynamo.run():
        compiled(X[0])
    assert log_of(compiled).graph_count == 1


def test_guard_collectives_say_that_they_do_nothing(installed):
    with pytest.warns(UserWarning, match="each process decides for itself"):
        torch.compiler.set_enable_guard_collectives(True)
    torch.compiler.set_enable_guard_collectives(False)


@pytest.mark.usefixtures("installed")
def test_arguments_are_those_of_torch():
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        torch.compile(Net(), mode="default", options={"recompile_limit": 3})
    with pytest.warns(UserWarning, match="name='net' has no effect: compile_log and explain name"):
        torch.compile(Net(), name="net")
    torch.testing.assert_close(torch.compile(lambda x: x * 2, recompile_limit=1, backend="eager")(X), X * 2)


@pytest.mark.usefixtures("installed")
def test_backends_of_the_program_get_mode_and_options():
    got = []

    def backend(graph_module, example_inputs, **arguments):
        got.append(arguments)
        return graph_module

    options = {"level": 3, "guard_filter_fn": lambda guards: [True] * len(guards)}
    for arguments in ({"options": options}, {"mode": "reduce-overhead"}, {"mode": "default"}, {}):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(lambda x: x + 1, backend=backend, **arguments)(X), X + 1)
    assert got == [{"options": {"level": 3}}, {"mode": "reduce-overhead"}, {}, {}]


@pytest.mark.usefixtures("installed")
def test_run_compiles_nothing():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = torch.compile(lambda x, n: x + n, backend=counter)
    compiled(X, 1)
    assert torch.equal(torch._dynamo.run(compiled)(X, 5), X + 5)
    assert torch.equal(torch._dynamo.run()(compiled)(X, 1), X + 1)
    assert counter.frame_count == 1


@pytest.mark.usefixtures("installed")
def test_compiled_modules_look_like_torchs():
    import torch._dynamo

    net = Net()
    compiled = torch.compile(net, backend="eager")
    assert isinstance(compiled, torch._dynamo.OptimizedModule)
    assert isinstance(compiled, torch._dynamo.eval_frame.OptimizedModule)
    assert not isinstance(net, torch._dynamo.OptimizedModule)
    assert compiled._orig_mod is net
    assert compiled.get_compiler_config() is None
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    assert torch.equal(compiled.dynamo_ctx(net.forward)(X), net(X))
    state = net.state_dict()
    assert compiled.state_dict().keys() == state.keys()
    for prefix in ("", "_orig_mod."):
        compiled.load_state_dict({prefix + name: value for name, value in state.items()})


def test_another_module_can_take_the_place_of_a_compiled_one():
    inner = Net()
    compiled = fxstack.compile(torch.nn.Sequential(inner), backend="eager")
    compiled(X)
    compiled._orig_mod = inner
    assert torch.equal(compiled(X, 3.0), inner(X, 3.0))
    assert compiled.state_dict().keys() == inner.state_dict().keys()
    assert compiled.own() == "Net"
    with pytest.raises(AttributeError, match="missing"):
        _ = compiled.missing


def test_everything_works_on_what_compile_returns_when_it_is_disabled():
    program = """
        import torch
        import fxstack
        net = torch.nn.Linear(2, 2)
        compiled = fxstack.compile(net)
        x = torch.ones(1, 2)
        print(torch.equal(compiled(x), net(x)), fxstack.compile_log(compiled).graph_count)
        print(type(fxstack.profile_of(compiled)).__name__)
        print(compiled._orig_mod is net)
    """
    assert fresh(program, TORCH_COMPILE_DISABLE="1") == ["True", "0", "ShapeProfile", "True"]


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recompile_limit": "8"}, "option 'recompile_limit' must be int, not '8' of type str"),
        ({"capture_scalar_outputs": 1}, "option 'capture_scalar_outputs' must be bool, not 1 of type int"),
        ({"inline_limit": True}, "option 'inline_limit' must be int, not True of type bool"),
    ],
)
def test_types_of_options_are_checked(options, text):
    with pytest.raises(TypeError, match=text):
        fxstack.compile(lambda x: x, options=options)


# --- callables without a graph -------------------------------------------------------------------


def said_of(fn, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = fxstack.compile(fn, backend="eager")
        compiled(*args)
        compiled(*args)
    return [one for one in caught if issubclass(one.category, fxstack.Uncompiled)]


def test_a_callable_without_a_graph_says_why_once_at_the_call():
    (said,) = said_of(lambda x: len(x) + 2, X)
    assert (
        "the call of the compiled test_a_callable_without_a_graph_says_why_once_at_the_call.<locals>.<lambda>"
        in str(said.message)
    )
    assert "no torch operation was captured" in str(said.message)
    assert said.filename == __file__
    assert said_of(lambda x: x + 1, X) == []


def test_a_module_without_a_graph_is_named_by_its_class():
    class Constant(torch.nn.Module):
        def forward(self, _x):
            return 3

    (said,) = said_of(Constant(), X)
    assert "Constant.forward (" in str(said.message)
    assert "_wrapped_call_impl" not in str(said.message)


def test_lazy_modules_are_compiled_later_without_a_word():
    assert said_of(torch.nn.LazyLinear(3), X) == []


def test_exported_programs_and_graph_modules_are_compiled():
    exported = torch.export.export(Net(), (X,)).module()
    traced = torch.fx.symbolic_trace(Net())
    for module in (exported, traced, traced.forward):
        compiled = fxstack.compile(module, backend="eager")
        torch.testing.assert_close(compiled(X), module(X))
        assert log_of(compiled).graph_count == 1


# --- one graph, as torch has it ------------------------------------------------------------------


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * x.sum().item(),
        lambda x: x.flatten().tolist(),
        lambda x: x[x > 0] * 2,
        lambda x: x.nonzero() + 1,
        lambda x: torch.LongTensor([1, 2, 3, 4]) + x,
    ],
)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_numbers_and_sizes_that_depend_on_data_are_in_one_graph(fn, backend):
    torch.testing.assert_close(fxstack.compile(fn, fullgraph=True, backend=backend)(X), fn(X))


# --- backends ------------------------------------------------------------------------------------


def trained(backend, fn):
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    result = (fn if backend is None else fxstack.compile(fn, backend=backend))(X, weight)
    result.backward()
    return result.detach(), weight.grad


def dense(x, weight):
    return torch.relu(x @ weight).sum()


def checkpointed(x, weight):
    return checkpoint(lambda a: torch.sin(torch.relu(a @ weight)), x, use_reentrant=False).sum()


@pytest.mark.parametrize("fn", [dense, checkpointed])
@pytest.mark.parametrize(
    "name", ["ts", "aot_ts", "aot_eager", "aot_eager_decomp_partition", "eager_noexcept"]
)
def test_backends_of_torch_by_name(name, fn):
    if "ts" in name and fn is checkpointed:
        pytest.skip("TorchScript has no operator for checkpoints")
    torch.testing.assert_close(trained(name, fn), trained(None, fn))


@pytest.mark.parametrize("fn", [dense, checkpointed])
def test_backends_made_with_torchs_aot_autograd(fn):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    shapes = []

    def compiler(graph, inputs):
        shapes.append([tuple(i.shape) if hasattr(i, "shape") else i for i in inputs])
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=compiler)
    torch.testing.assert_close(trained(backend, fn), trained(None, fn))
    assert shapes


def test_example_inputs_are_the_tensors_of_the_call():
    seen = []

    def backend(graph, inputs):
        seen.append((graph, inputs))
        return graph.forward

    net = Net()
    fxstack.compile(net, backend=backend)(X)
    ((graph, inputs),) = seen
    assert {id(value) for value in inputs} == {id(X), id(net.linear.weight), id(net.linear.bias)}
    assert sorted(graph.meta["dynamo_flat_name_to_original_fqn"].values()) == ["linear.bias", "linear.weight"]


def test_recompute_tags_are_torchs():
    tags = []

    def backend(graph, _inputs):
        tags.extend(node.meta["recompute"] for node in graph.graph.nodes if "recompute" in node.meta)
        return graph.forward

    fxstack.compile(checkpointed, backend=backend)(X, torch.randn(4, 4, requires_grad=True))
    assert set(tags) == {CheckpointPolicy.MUST_RECOMPUTE}


# --- other tracers -------------------------------------------------------------------------------

TRACERS = {
    "jit.trace": "torch.jit.trace(net, (x,))(x)",
    "jit.script": "torch.jit.script(net)(x)",
    "symbolic_trace": "torch.fx.symbolic_trace(net)(x)",
    "make_fx": "make_fx(net)(x)(x)",
    "export": "torch.export.export(net, (x,)).module()(x)",
    "strict export": "torch.export.export(net, (x,), strict=True).module()(x)",
    "onnx": "torch.onnx.export(net, (x,), io.BytesIO(), dynamo=False)",
}


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("name", TRACERS)
def test_other_tracers_see_the_original_or_raise(name, is_warm):
    program = f"""
        import io, warnings
        warnings.simplefilter("ignore")
        import torch, fxstack
        from torch.fx.experimental.proxy_tensor import make_fx
        original = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        net = fxstack.compile(original)
        x = torch.randn(3, 4)
        if {is_warm}:
            net(x)
        try:
            result = {TRACERS[name]}
        except Exception as error:
            print("raised", type(error).__name__)
        else:
            print(result is None or torch.allclose(result, original(x), atol=1e-6))
    """
    expected = [["True"], ["raised", "OnnxExporterError"]] if name == "onnx" else [["True"]]
    assert fresh(program) in expected
