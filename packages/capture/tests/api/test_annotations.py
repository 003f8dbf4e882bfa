"""What programs say with ``torch.compiler`` means the same here; and calls of our own compiler break the graph."""

import cmath
import contextlib
import warnings
import zlib

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

X = torch.arange(3.0)


class Graphs(list):
    def __call__(self, graph_module, _):
        self.append(graph_module)
        return graph_module.forward

    def targets(self):
        return [[n.target for n in g.graph.nodes if n.op == "call_function"] for g in self]


def beside_eager(fn, calls=2, **options):
    """The graphs of ``fn``, which must do what it does in eager, without a warning, on every call."""
    graphs = Graphs()
    expected = fn(X)
    compiled = fx.optimize(graphs, **options)(fn)
    for _ in range(calls):
        with warnings.catch_warnings():
            warnings.simplefilter("error", TracingWarning)
            torch.testing.assert_close(compiled(X), expected)
    return graphs


def inner(x):
    return x.sin() * 2


# --- constants -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lambda fn: fn, staticmethod, classmethod, property])
def test_constants_are_found_once(kind):
    calls = []

    class Table:
        @kind
        @torch.compiler.assume_constant_result
        def value(*_):
            calls.append(1)
            return 3

    made = Table()
    found = (lambda: made.value) if kind is property else (lambda: made.value())
    table = fx.optimize(fullgraph=True)(lambda x: x * found())
    assert torch.equal(table(X), X * 3)
    assert torch.equal(table(X), X * 3)
    assert len(calls) == 1


def test_constants_of_a_module_are_found_once():
    class Module(torch.nn.Module):
        calls = 0

        @torch.compiler.assume_constant_result
        def scale(self, by):
            type(self).calls += 1
            return {"by": by}

        def forward(self, x):
            return x * self.scale(4)["by"]

    module = fx.optimize(fullgraph=True)(Module())
    assert torch.equal(module(X), X * 4)
    assert torch.equal(module(X), X * 4)
    assert Module.calls == 1


# --- one node ------------------------------------------------------------------------------------


@torch.compiler.allow_in_graph
def allowed(x, k=2):
    return x * k * k, [x + 1]


def test_what_is_allowed_is_one_node():
    graphs = beside_eager(lambda x: allowed(x + 1, k=3)[1][0] + 1, fullgraph=True)
    assert graphs.targets()[0].count(allowed) == 1


def test_lists_and_static_methods_may_be_allowed():
    class Holder:
        @staticmethod
        def tripled(x):
            return x * 3

    torch.compiler.allow_in_graph([Holder.tripled])
    assert Holder.tripled in beside_eager(lambda x: Holder.tripled(x) + 1).targets()[0]


def test_a_method_that_is_allowed_is_right():
    class Module(torch.nn.Module):
        @torch.compiler.allow_in_graph
        def doubled(self, x):
            return x * 2

        def forward(self, x):
            return self.doubled(x) + 1

    beside_eager(Module())


def test_functions_made_anew_are_told_apart_from_allowed_ones():
    def times(k):
        return lambda x: x * k

    apply = fx.optimize()(lambda f, x: f(x))
    marked = torch.compiler.allow_in_graph(times(3))
    for f, k in ((times(2), 2), (marked, 3), (times(5), 5), (marked, 3)):
        assert torch.equal(apply(f, X), X * k)


def test_what_is_traced_without_being_looked_into_is_not_mistaken_for_it():
    traced = torch._dynamo.nonstrict_trace(lambda x: {"a": x * 2})
    beside_eager(lambda x: traced(x)["a"] + 1, fullgraph=True)


# --- not to be compiled --------------------------------------------------------------------------


def test_only_what_is_marked_is_left_alone_when_not_recursive():
    @torch.compiler.disable(recursive=False)
    def first(x):
        return inner(x) + 1

    class Second:
        @torch.compiler.disable(recursive=False)
        def method(self, x):
            return inner(x) - 1

    second = Second()
    graphs = beside_eager(lambda x: first(x * 2) * second.method(x))
    used = [t.__name__ for targets in graphs.targets() for t in targets]
    assert "sub" not in used
    assert "add" not in used
    assert "sin" in "".join(g.code for g in graphs)


def test_a_function_that_is_marked_by_one_caller_is_compiled_for_others():
    kept = torch.compiler.disable(inner, recursive=False)
    beside_eager(lambda x: kept(x) + 1)
    assert len(beside_eager(inner)) == 1


@pytest.mark.parametrize("disable", [torch.compiler.disable, fx.disable])
def test_disabled_modules(disable):
    layers = [torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3)]
    layers[1] = disable(layers[1])
    graphs = beside_eager(torch.nn.Sequential(*layers))
    assert not any("relu" in g.code for g in graphs)
    assert len(graphs) == 2


@pytest.mark.parametrize("disable", [torch.compiler.disable, fx.disable])
def test_the_reason_is_shown(disable):
    plain = disable(inner, reason="it is slow")
    with pytest.raises(fx.Unsupported, match=r"inner \(it is slow\) is excluded from compilation"):
        fx.optimize(fullgraph=True)(lambda x: plain(x) + 1)(X)


# --- questions, and orders to the compiler ---------------------------------------------------------


def test_the_program_is_told_that_it_is_compiled():
    questions = [torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, fx.is_compiling]
    questions += [torch._dynamo.is_compiling, torch._dynamo.external_utils.is_compiling]
    told = fx.optimize(fullgraph=True)(lambda x: x + sum(ask() for ask in questions))
    assert torch.equal(told(X), X + len(questions))
    assert not any(ask() for ask in questions)


ORDERS = {
    "reset": lambda: fx.reset(),
    "explain": lambda: fx.explain(inner)(X),
    "capture": lambda: fx.capture(inner, X),
    "torch's reset": lambda: torch.compiler.reset(),
    "torch's step": lambda: torch.compiler.cudagraph_mark_step_begin(),
    "torch's stance": lambda: torch.compiler.set_stance("default"),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_orders_to_a_compiler_run_between_graphs(order):
    def program(x):
        y = x + 1
        order()
        return y * 2

    beside_eager(program)


def test_an_object_that_answers_every_attribute_is_not_asked_at_a_break():
    class Asked:
        def __init__(self):
            self.names = []

        def __getattr__(self, name):
            self.names.append(name)
            raise AttributeError(name)

        def __call__(self, x):
            return plain(x)

    plain = fx.disable(inner)
    asked = Asked()
    beside_eager(lambda x: plain(x) + (asked(x) if asked is not None else 0))
    assert asked.names == []


@pytest.mark.parametrize("recursive", [True, False])
def test_what_is_disabled_inside_is_called_between_two_graphs(recursive):
    def program(x):
        @fx.disable(recursive=recursive)
        def inside(y):
            assert not fx.is_compiling()
            return y + 1

        return inside(x) * 2

    assert len(beside_eager(program)) >= 1


# --- where breaks are errors -----------------------------------------------------------------------


def breaks_in(fn, *, outside=None, **options):
    """What becomes of a call: its result, or the id of the break that is an error."""
    try:
        with contextlib.nullcontext() if outside is None else fx.error_on_graph_break(outside):
            return fx.optimize(**options)(fn)(X).tolist()
    except fx.Unsupported as error:
        return error.record.reason.id


def strict_part(x):
    with fx.error_on_graph_break(True):
        x = x + 1
        fx.graph_break()
    return x


def lenient_part(x):
    with fx.error_on_graph_break(True):
        with fx.error_on_graph_break(False):
            x = x + 1
            fx.graph_break()
        x = x * 2
    fx.graph_break()
    return x


def strict_behind_a_break(x):
    with fx.error_on_graph_break(False):
        fx.graph_break()
        x = x + 1
        with fx.error_on_graph_break(True):
            x = x + x.sum().item()
    return x


@fx.error_on_graph_break(False)
def lenient(x):
    fx.graph_break()
    return x + 1


def test_breaks_are_errors_where_the_program_says_so():
    assert breaks_in(strict_part) == "user-break"
    assert breaks_in(lenient_part) == ((X + 1) * 2).tolist()
    assert breaks_in(strict_behind_a_break) == "data-dependent-number"
    assert breaks_in(lambda x: lenient(x) * 2, outside=True) == ((X + 1) * 2).tolist()
    assert breaks_in(fx.disable(lambda x: x), outside=True) == X.tolist()
    assert breaks_in(lambda x: lenient(x) + x.sum().item(), outside=True) == "data-dependent-number"
    assert breaks_in(lenient, fullgraph=True) == "user-break"
    assert breaks_in(lambda x: x + x.sum().item()) == (X + 3).tolist()


def test_a_whole_graph_is_not_given_up_at_the_limit():
    compiled = fx.optimize(options=fx.CaptureOptions(fullgraph=True, recompile_limit=1, dynamic=False))(inner)
    compiled(X)
    with pytest.raises(RuntimeError, match="recompile_limit"):
        compiled(torch.ones(5))


# --- breaks, frames that are left alone, leaves -----------------------------------------------------


@pytest.mark.parametrize("graph_break", [fx.graph_break, torch._dynamo.graph_break])
def test_a_break_says_what_the_program_says(graph_break):
    def broken(x):
        y = inner(x)
        graph_break("for a reason")
        return inner(y)

    assert len(beside_eager(broken)) == 2
    (record,) = fx.explain(broken)(X).breaks
    assert (record.reason.id, record.detail) == ("user-break", "by the program: for a reason")


@pytest.mark.parametrize("skip_frame", [fx.skip_frame, torch._dynamo.skip_frame])
def test_a_skipped_frame_is_plain_but_not_what_it_calls(skip_frame):
    def skipped(x):
        y = torch.cos(x)
        skip_frame()
        return called(y)

    called = lambda x: torch.exp(x)
    graphs = beside_eager(lambda x: torch.sin(skipped(torch.abs(x))))
    assert graphs.targets() == [[torch.abs], [torch.exp], [torch.sin]]


def test_marked_steps_are_part_of_the_graph():
    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        if hasattr(torch.compiler, "cudagraph_mark_warmup_incomplete"):  # torch 2.14
            torch.compiler.cudagraph_mark_warmup_incomplete()
        return inner(x)

    beside_eager(step, fullgraph=True)


def test_modules_compiled_by_torch_are_part_of_the_graph():
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), backend="eager")
    model.register_forward_hook(lambda _module, _args, result: result + 1)
    beside_eager(lambda x: model(x + 1) * 2, fullgraph=True)


def test_modules_disabled_by_torch_are_not():
    model = torch.compiler.disable(torch.nn.Linear(3, 3))
    assert len(beside_eager(lambda x: model(x + 1) * 2)) == 2


@torch.compiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)
def adler32(data, value=1):
    low, high = value & 65535, value >> 16
    for byte in data:
        low = (low + byte) % 65521
        high = (high + low) % 65521
    return (high << 16) | low


def test_torchs_substitutes_are_traced():
    beside_eager(lambda x: x * zlib.adler32(b"abc") + adler32(b"d"), fullgraph=True)


def test_leaf_functions_are_one_node():
    seen = []

    @torch._dynamo.decorators.leaf_function
    def measured(x):
        seen.append(x.sum().item())
        return (x * 2,)

    measured.register_fake(lambda x: (torch.empty_like(x),))
    (graph,) = beside_eager(lambda x: measured(x + 1)[0] + 1, fullgraph=True)
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert "invoke_leaf_function" in names
    assert seen == [6.0] * 3


def test_torchs_substitutes_precede_rules_and_constants():
    seen = []

    def phase(z):
        seen.append(z)
        return 7.0

    try:
        torch.compiler.substitute_in_graph(cmath.phase, skip_signature_check=True)(phase)
    except ValueError as error:
        pytest.skip(f"this torch takes no substitute: {error}")
    compiled = fx.optimize(fullgraph=True)(lambda x: x * cmath.phase(1j))
    assert compiled(torch.ones(2)).tolist() == [7.0, 7.0]
    assert seen == [1j]


def test_what_torch_is_told_to_disallow_ends_the_graph():
    def program(x):
        return torch.sub(torch.add(x, 1), 1).sin()

    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert len(beside_eager(program)) == 2
        assert breaks_in(program, fullgraph=True) == "disallowed"
    finally:
        torch._dynamo.allow_in_graph(torch.sub)
    assert len(beside_eager(program)) == 1


def test_what_torch_is_told_to_forbid_is_an_error():
    @torch._dynamo.forbid_in_graph
    def forbidden(x):
        return x + 1

    assert breaks_in(lambda x: forbidden(x) * 2) == "forbidden"


def test_functions_that_torch_forbids_run_between_graphs():
    def marks(x):
        y = x * 2
        torch._dynamo.mark_dynamic(y, 0)
        return y + 1

    beside_eager(marks)


def test_callbacks_of_torch_hear_of_compilations():
    heard = []
    start = torch._dynamo.callback.on_compile_start(
        lambda args: heard.append(("start", args.callback_trigger.name))
    )
    end = torch._dynamo.callback.on_compile_end(lambda args: heard.append(("end", type(args.compile_id))))
    try:
        compiled = fx.optimize(dynamic=False)(lambda x: x.sin())
        for size in (2, 2, 3):
            compiled(torch.ones(size))
    finally:
        torch._dynamo.callback.callback_handler.remove_start_callback(start)
        torch._dynamo.callback.callback_handler.remove_end_callback(end)
    assert heard == [("start", "DYNAMO"), ("end", str)] * 2


@pytest.mark.skipif(
    not hasattr(torch._dynamo.decorators, "patch_dynamo_config"), reason="this torch has none"
)
@pytest.mark.parametrize("is_decorator", [True, False])
def test_settings_may_be_patched_inside(is_decorator):
    patched = torch._dynamo.decorators.patch_dynamo_config(capture_scalar_outputs=True)

    def read(x):
        return x + x.sum().item()

    def within(x):
        with patched:
            return read(x)

    part = patched(read) if is_decorator else within
    beside_eager(lambda x: part(x) * 2)
    assert not torch._dynamo.config.capture_scalar_outputs


def test_settings_may_be_patched_between_graphs():
    def program(x):
        y = x + 1
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            y = y + torch._dynamo.config.capture_scalar_outputs
        return y, torch._dynamo.config.capture_scalar_outputs

    beside_eager(program)


def test_settings_may_be_changed_inside():
    config = torch._dynamo.config

    def program(x):
        config.capture_scalar_outputs = True
        seen = config.capture_scalar_outputs
        config.capture_scalar_outputs = False
        return x + 1, seen, config.capture_scalar_outputs

    beside_eager(program)
