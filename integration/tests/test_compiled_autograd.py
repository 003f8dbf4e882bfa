"""torch's compiled autograd on fxstack: backward passes become whole graphs, with eager's values and effects."""

import subprocess
import sys
import textwrap

import compiled_backwards
import pytest
import torch
import torch._dynamo as dynamo
from compiled_backwards import PROGRAMS, leaf, net, same
from torch._dynamo import compiled_autograd

import fxstack


@pytest.fixture(autouse=True)
def installed():
    fxstack.install()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    fxstack.uninstall()


def values(fn):
    torch.manual_seed(0)
    return list(fn())


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


def counting():
    """A backend that runs graphs as they are, and the list of its graphs."""
    graphs = []
    return graphs, lambda graph, _inputs: (graphs.append(graph), graph.forward)[1]


def check(fn, backend="eager", graphs=None, **keywords):
    """Compare ``fn`` under compiled autograd with eager; ``graphs``: the number of graphs of backward passes."""
    with torch.compiler.set_stance("force_eager"):
        expected = values(fn)
    made, counted = counting()
    chosen = counted if backend == "eager" else backend
    keywords = {"fullgraph": True, "dynamic": True, **keywords}
    with compiled_autograd._enable(torch.compile(backend=chosen, **keywords)):
        found = values(fn)
    assert_same(found, expected)
    assert graphs is None or len(made) == graphs


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_make_the_graphs_of_torch(name):
    fn, graphs = PROGRAMS[name]
    check(fn, graphs=graphs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_backends(name, backend):
    check(PROGRAMS[name][0], backend)


def test_the_numbers_of_graphs_are_those_of_torch():
    names = ("steps", "sizes_that_change", "custom_functions", "second_backwards", "accumulation_in_place")
    program = f"""
        import torch
        from torch._dynamo import compiled_autograd
        from compiled_backwards import PROGRAMS
        for name in {names}:
            torch._dynamo.reset()
            graphs = []
            backend = lambda graph, _: (graphs.append(graph), graph.forward)[1]
            with compiled_autograd._enable(torch.compile(backend=backend, fullgraph=True, dynamic=True)):
                list(PROGRAMS[name][0]())
            print(len(graphs))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=compiled_backwards.__file__.rpartition("/")[0],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [int(line) for line in done.stdout.split()] == [PROGRAMS[name][1] for name in names]


# --- hooks that end the graph, as in torch ---------------------------------------------------------


def waits_for_all():
    a, b, seen = leaf(), leaf(), []
    torch.autograd.graph.register_multi_grad_hook([a, b], lambda grads: seen.extend(g * 2 for g in grads))
    (a * b).sum().backward()
    yield from (a.grad, b.grad, *seen)


def waits_for_any():
    a, b, seen = leaf(), leaf(), []
    for _ in range(2):
        torch.autograd.graph.register_multi_grad_hook([a, b], lambda g: seen.append(g * 2), mode="any")
    (a * b).sum().backward()
    yield from (a.grad, b.grad, *seen)


def retained_gradients():
    x = leaf()
    y = x.sin()
    y.retain_grad()
    (y * y).sum().backward()
    yield from (x.grad, y.grad)


def twice_differentiated():
    x = leaf()
    (found,) = torch.autograd.grad(compiled(lambda x: x.sin().sum())(x), x, create_graph=True)
    found.sum().backward()
    yield from (found, x.grad)


def watched_results():
    x = leaf()
    a, b = compiled(lambda x: (x.sin(), x.sin().exp().sum()))(x)
    a.retain_grad()
    (a.sum() + b).backward()
    yield from (x.grad, a.grad)


def queues_before_a_break():
    x, seen = leaf(), []
    y = x.sin()

    def queues(_grad):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: seen.append(x.grad * 2))

    def breaks(_grad):
        fxstack.graph_break()

    y.register_hook(queues)
    x.register_hook(breaks)
    y.sum().backward()
    yield from (x.grad, *seen)


BREAKING = [
    *(waits_for_all, waits_for_any, retained_gradients, twice_differentiated, watched_results),
    queues_before_a_break,
]


@pytest.mark.parametrize("fn", BREAKING, ids=lambda fn: fn.__name__)
def test_hooks_outside_of_graphs(fn):
    check(fn, fullgraph=False)


def test_one_whole_graph_is_demanded():
    with pytest.raises(fxstack_unsupported()):
        check(retained_gradients)


def fxstack_unsupported():
    import fxstack_capture

    return fxstack_capture.Unsupported


# --- backwards of compiled graphs -----------------------------------------------------------------


def compiled(fn, backend="aot_eager"):
    return torch.compile(fn, backend=backend)


def compiled_model(backend):
    def fn():
        model = net()
        call = compiled(model, backend)
        for count in (2, 3, 4, 5):
            model.zero_grad()
            call(torch.randn(count, 4)).sin().sum().backward()
            yield from (p.grad for p in model.parameters())

    return fn


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_forwards(backend):
    check(compiled_model(backend))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_forwards_and_backwards(backend):
    check(compiled_model(backend), backend)


def dropped_out():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Tanh())
    compiled(model, "inductor")(torch.ones(3, 4)).sum().backward()
    yield model[0].weight.grad


def autocast():
    model = net()
    with torch.autocast("cpu", torch.bfloat16):
        compiled(model)(torch.ones(3, 4)).sum().backward()
    yield from (p.grad for p in model.parameters())


def apart(x, w):
    return (x * w).sin(), (x * w.exp()).cos()


def results_apart():
    for wanted in ((0,), (1,), (0, 1)):
        x, w = leaf(), leaf()
        results = compiled(apart)(x, w)
        sum(results[place].sum() for place in wanted).backward()
        yield from (x.grad, w.grad)


def results_from_results():
    fn = compiled(lambda x: (x.sin(), x.sin().exp().sum()))
    x = leaf()
    a, b = fn(x)
    b.backward(retain_graph=True)
    yield x.grad.clone()
    (a.sum() + b).backward()
    yield x.grad


def one_of_two_graphs():
    """Nodes of different graphs have one class but different backwards."""
    for function in (apart, lambda x, w: ((x + w).cos(), (x - w).sin())):
        x, w = leaf(), leaf()
        compiled(function)(x, w)[1].sum().backward()
        yield from (x.grad, w.grad)


def hooked_inside():
    @compiled
    def fn(x):
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        return y.exp().sum()

    x = leaf()
    fn(x).backward()
    yield x.grad


def run_twice():
    x = leaf()
    loss = compiled(lambda x: x.sin().exp().sum())(x)
    loss.backward(retain_graph=True)
    loss.backward()
    yield x.grad


def saved_by_hooks():
    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        loss = compiled(lambda x: x.sin().exp().sum())(x)
    loss.backward()
    yield x.grad


def saved_by_hooks_with_effects():
    x, seen = leaf(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.sum()) or t, lambda t: t):
        loss = compiled(lambda x: (x * x).sum())(x)
    loss.backward()
    yield x.grad


def no_gradient():
    x, w = leaf(), torch.ones(4)
    a, b = compiled(lambda x, w: (x.sin() * w, (w * 2).cos()))(x, w)
    (a.sum() + b.sum()).backward()
    yield x.grad
    yield same(w.grad is None)


def changed_between():
    x = leaf()
    a, b = compiled(lambda x: (x.sin(), x.exp()))(x)
    with torch.no_grad():
        x.add_(1)
    try:
        (a.sum() + b.sum()).backward()
    except RuntimeError as error:
        yield same("modified by an inplace operation" in str(error))


OF_COMPILED = [
    *(
        dropped_out,
        autocast,
        results_apart,
        results_from_results,
        one_of_two_graphs,
        hooked_inside,
        run_twice,
    ),
    *(saved_by_hooks, saved_by_hooks_with_effects, no_gradient, changed_between),
]


@pytest.mark.parametrize("fn", OF_COMPILED, ids=lambda fn: fn.__name__)
def test_backwards_of_compiled_graphs(fn):
    check(fn)


# --- the setting ----------------------------------------------------------------------------------


def trained(compile_step, hook=None):
    """Three steps whose backward is called by the compiled function."""
    model, seen = net(), []
    if hook is not None:
        model[0].weight.register_hook(lambda g: hook(seen, g))

    def step(x):
        loss = model(x).sum()
        torch._dynamo.graph_break()
        loss.backward()
        return loss

    step = compile_step(step)
    for count in (2, 3, 4):
        yield step(torch.randn(count, 4)).detach()
        yield from (p.grad.clone() for p in model.parameters())
    yield from seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("hook", [None, lambda seen, g: seen.append(g.sum()) or g * 2])
def test_the_setting_compiles_backward_passes(backend, hook):
    expected = values(lambda: trained(lambda fn: fn, hook))
    dynamo.utils.counters.clear()
    with dynamo.config.patch(compiled_autograd=True):
        found = values(lambda: trained(lambda fn: compiled(fn, backend), hook))
    assert_same(found, expected)
    assert dynamo.utils.counters["compiled_autograd"]["captures"] > 0


def test_graphs_of_backward_passes_go_to_the_backend():
    numbers = []
    for setting in (False, True):
        torch._dynamo.reset()
        made, counted = counting()
        with dynamo.config.patch(compiled_autograd=setting):
            values(lambda counted=counted: trained(lambda fn: compiled(fn, counted)))
        numbers.append(len(made))
    assert numbers[1] > numbers[0]


def test_the_option_of_compile():
    dynamo.utils.counters.clear()
    step = [
        lambda fn: fn,
        lambda fn: fxstack.compile(fn, backend="eager", options={"compiled_autograd": True}),
    ]
    expected, found = (values(lambda chosen=chosen: trained(chosen)) for chosen in step)
    assert_same(found, expected)
    assert dynamo.utils.counters["compiled_autograd"]["captures"] > 0


def test_backward_outside_of_the_compiled_function():
    model = net()
    model(torch.ones(2, 4)).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with dynamo.config.patch(compiled_autograd=True):
        compiled(model)(torch.ones(2, 4)).sum().backward()
    assert_same([p.grad for p in model.parameters()], expected)


def test_the_setting_is_not_on_after_a_call_that_raises():
    def fn(x):
        torch._dynamo.graph_break()
        raise ValueError("of the program")

    with dynamo.config.patch(compiled_autograd=True), pytest.raises(ValueError, match="of the program"):
        compiled(fn)(leaf())
    assert not compiled_autograd.compiled_autograd_enabled


def test_the_context_for_tests_of_torch():
    expected = values(PROGRAMS["tensor_hooks"][0])
    with dynamo.utils.maybe_enable_compiled_autograd(True):
        found = values(PROGRAMS["tensor_hooks"][0])
    assert_same(found, expected)


def test_reset_forgets_backward_passes():
    fn = PROGRAMS["tensor_hooks"][0]
    check(fn, graphs=1)
    check(fn, graphs=0)
    torch._dynamo.reset()
    check(fn, graphs=1)


# --- data parallelism -----------------------------------------------------------------------------


@pytest.fixture
def one_rank(tmp_path):
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.FileStore(str(tmp_path / "store"))
    )
    yield
    torch.distributed.destroy_process_group()


def replicated(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for part in (model[0], model[2], model):
        fully_shard(part, mesh=init_device_mesh("cpu", (1,)))
    return model


def steps_of(wrap, call):
    model = net()
    wrapped = call(wrap(model))
    for _ in range(3):
        model.zero_grad()
        wrapped(torch.ones(2, 4)).sum().backward()
        for p in model.parameters():
            yield getattr(p.grad, "full_tensor", p.grad.clone)()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(("wrap", "fullgraph"), [(replicated, True), (sharded, False)])
def test_data_parallelism(wrap, fullgraph):
    expected = values(lambda: steps_of(lambda model: model, lambda model: model))
    dynamo.utils.counters.clear()
    with (
        dynamo.config.patch(optimize_ddp="python_reducer"),
        compiled_autograd._enable(torch.compile(backend="eager", fullgraph=fullgraph)),
    ):
        found = values(lambda: steps_of(wrap, compiled))
    assert_same(found, expected)
    assert dynamo.utils.counters["compiled_autograd"]["captures"] > 0
