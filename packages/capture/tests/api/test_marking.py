"""What programs say about their callables: one node, no graph, an error, a constant, never compiled."""

import dataclasses
import statistics
import weakref
import zlib

import pytest
import torch
from counting import Counting

import fxstack_capture as fx

X = torch.ones(3)


class Graphs(list):
    def __call__(self, graph_module, _):
        self.append(graph_module)
        return graph_module.forward


def run(fn, *args, **options):
    """The result and the graphs."""
    graphs = Graphs()
    return fx.optimize(graphs, **options)(fn)(*args), graphs


@fx.allow_in_graph
def cubed(x, k=2):
    for _ in range(3):
        x = x * k
    return x


def test_allowed_functions_are_one_node():
    found, graphs = run(lambda x: cubed(x + 1) + 1, X, fullgraph=True)
    assert torch.equal(found, cubed(X + 1) + 1)
    targets = [n.target for n in graphs[0].graph.nodes if n.op == "call_function"]
    assert cubed in targets
    assert len(targets) == 3


@fx.disallow_in_graph
def disallowed(x):
    return x + 1


def test_disallowed_functions_break():
    found, _ = run(lambda x: disallowed(x * 2) * 3, X)
    assert torch.equal(found, torch.full((3,), 9.0))
    explained = fx.explain(lambda x: disallowed(x * 2) * 3)(X)
    assert [b.reason.id for b in explained.breaks] == ["disallowed"]


@fx.forbid_in_graph
def forbidden(x):
    return x + 1


def test_forbidden_functions_are_errors():
    with pytest.raises(fx.Unsupported, match="forbidden is called in compiled code"):
        run(lambda x: forbidden(x), X)
    assert torch.equal(forbidden(X), X + 1)


def test_constant_results_are_found_once():
    calls = []

    @fx.assume_constant_result
    def table(k):
        calls.append(k)
        return {"a": k, "t": torch.full((3,), 2.0)}

    fn = fx.optimize(fullgraph=True)(lambda x: x * table(4)["a"] + table(4)["t"])
    assert torch.equal(fn(X), torch.full((3,), 6.0))
    seen = len(calls)
    assert torch.equal(fn(X), torch.full((3,), 6.0))
    assert len(calls) == seen > 0


def test_constant_results_of_tensors_of_the_graph_are_not_assumed():
    @fx.assume_constant_result
    def shape(x):
        return x.shape[0]

    found, _ = run(lambda x: x * shape(x + 1), X)
    assert torch.equal(found, X * 3)


def test_constant_results_are_not_found_from_what_the_call_has_changed():
    @fx.assume_constant_result
    def length(items):
        return len(items)

    def fn(x, items):
        items.append(1)
        return x * length(items)

    assert torch.equal(run(fn, X, [])[0], X)
    assert torch.equal(run(fn, X, [1, 2])[0], X * 3)


class Counted:
    def __init__(self):
        self.calls, self.items = 0, [1]

    @fx.assume_constant_result
    def size(self):
        return self.calls + len(self.items)

    @torch.compiler.assume_constant_result
    def shape_of(self, x):
        return x.shape[0] + self.calls


@pytest.mark.parametrize(
    "change",
    [
        lambda owner: setattr(owner, "calls", 4),
        lambda owner: setattr(owner, "calls", owner.calls + 1),
        lambda owner: owner.items.append(2),
        lambda owner: setattr(owner, "items", [1, 2, 3]),
        lambda owner: delattr(owner, "items"),
    ],
)
def test_constant_results_after_changes_are_what_plain_python_gives(change):
    def fn(x, owner):
        change(owner)
        try:
            return x * owner.size(), owner.shape_of(x * 2)
        except AttributeError as error:
            return x, str(error)

    graphs = Graphs()
    compiled = fx.optimize(graphs, fullgraph=True)(fn)
    plain, owner = Counted(), Counted()
    for _ in range(3):
        (expected, said), (found, says) = fn(X, plain), compiled(X, owner)
        assert torch.equal(found, expected) and said == says
        assert vars(plain) == vars(owner)
        plain.items, owner.items = [1], [1]


def test_functions_in_c_are_traced_as_their_substitutes():
    with pytest.raises(TypeError, match="has other parameters than NormalDist.__init__"):
        fx.substitute_in_graph(statistics.NormalDist.__init__)(lambda x: x)

    @fx.substitute_in_graph(zlib.crc32)
    def crc32(data, value=0, /):
        return len(data) + value

    found, graphs = run(lambda x: x * zlib.crc32(b"abc"), X, fullgraph=True)
    assert (torch.equal(found, X * 3), len(graphs)) == (True, 1)
    assert zlib.crc32(b"abc") != 3


def inner(x):
    return x.sin() * 2


@fx.skip
def skipped(x):
    return inner(x) + 1


def test_skipped_functions_call_compiled_ones():
    found, graphs = run(lambda x: skipped(x * 2) * 3, X)
    assert torch.allclose(found, ((X * 2).sin() * 2 + 1) * 3)
    assert any("sin" in g.code for g in graphs)
    assert not any("+ 1" in g.code for g in graphs)


@pytest.mark.parametrize("disable", [fx.disable, fx.disable(), fx.disable(recursive=True, reason="so")])
def test_disabled_functions_call_plain_ones(disable):
    found, graphs = run(lambda x: (disable(inner))(x * 2) * 3, X)
    assert torch.allclose(found, (X * 2).sin() * 6)
    assert not any("sin" in g.code for g in graphs)


def test_not_recursively_disabled_is_skipped():
    def outer(x):
        return inner(x) + 1

    marked = fx.disable(outer, recursive=False)
    _, graphs = run(lambda x: marked(x * 2) * 3, X)
    assert any("sin" in g.code for g in graphs)
    assert not any("sin" in g.code and "add" in g.code for g in graphs)


@pytest.mark.parametrize(
    "mark",
    [fx.allow_in_graph, fx.disallow_in_graph, fx.forbid_in_graph, fx.assume_constant_result]
    + [fx.skip, fx.disable],
)
def test_only_callables_are_marked(mark):
    with pytest.raises(TypeError, match="expected a function"):
        mark(3)


def test_lists_are_marked_and_returned():
    functions = [lambda x: x + 1, lambda x: x + 2]
    assert fx.allow_in_graph(functions) is functions


def test_guarded_addresses_are_compiled_for_one_tensor():
    cache, other = torch.ones(3), torch.ones(3)
    fx.mark_static_address(cache, guard=True)
    graphs = Graphs()
    compiled = fx.optimize(graphs)(lambda x: x + 1)
    for tensor in (cache, cache, other, other, cache):
        assert torch.equal(compiled(tensor), tensor + 1)
    assert len(graphs) == 2
    alive = weakref.ref(cache)
    del cache, tensor
    assert alive() is None


def test_unguarded_addresses_are_a_hint():
    cache = torch.ones(3)
    fx.mark_static_address(cache)
    found, graphs = run(lambda x: x + 1, cache)
    assert torch.equal(found, cache + 1)
    assert len(graphs) == 1


def test_addresses_of_tensors_only():
    with pytest.raises(TypeError, match="expected a tensor, got a list"):
        fx.mark_static_address([1])


class TestNotRecursivelyDisabled:
    """The function itself is as it was, and is what is compiled where the wrapper is given to the compiler."""

    @staticmethod
    def asks(x):
        return x - 1 if torch.compiler.is_compiling() else x + 1

    @pytest.mark.parametrize("disable", [fx.disable, torch.compiler.disable])
    def test_it_is_another_function(self, disable):
        kept = disable(self.asks, recursive=False)
        x = torch.zeros(2)
        call = fx.optimize(Counting())(lambda f, x: f(x))
        assert [call(f, x).tolist() for f in (self.asks, kept)] == [[-1, -1], [1, 1]]
        assert fx.optimize(Counting())(kept)(x).tolist() == [-1, -1]
        assert kept(x).tolist() == [1, 1]

    def test_modules(self):
        module = fx.disable(torch.nn.Linear(2, 2), recursive=False)
        x = torch.zeros(2)
        assert torch.equal(fx.optimize(Counting())(lambda x: module(x))(x), module(x))


CLOSED = torch.ones(1, requires_grad=True)
LAYERS = {"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)}


@fx.nonstrict_trace
def over_closure(x):
    fx.graph_break()
    return x * CLOSED


@fx.nonstrict_trace
def over_modules(x, layers):
    fx.graph_break()
    return layers["a"](x) + layers["b"](x)


def plain(x):
    fx.graph_break()
    return x * 3


@pytest.mark.parametrize(
    ("program", "leaves"),
    [
        (over_closure, [CLOSED]),
        (lambda x: over_modules(x, LAYERS), [*LAYERS["a"].parameters()]),
        (lambda x: fx.nonstrict_trace(plain)(x) * CLOSED, [CLOSED]),
    ],
)
def test_nonstrict_functions_read_tensors_from_outside(program, leaves):
    x = torch.randn(2, 2)
    compiled = fx.optimize(Counting(), fullgraph=True)(lambda x: program(x) + 1)
    for _ in range(2):
        gradients = [torch.autograd.grad(f(x).sum(), leaves) for f in (compiled, program)]
        torch.testing.assert_close(*gradients)
        with torch.no_grad():
            leaves[0].mul_(2)
        torch.testing.assert_close(compiled(x), program(x) + 1)


def test_nonstrict_trace_of_a_new_function_is_refused():
    def program(x):
        return fx.nonstrict_trace(lambda x: x + 1)(x)

    with pytest.raises(fx.Unsupported, match="nonstrict_trace of a function that was made inside"):
        fx.optimize(Counting(), fullgraph=True)(program)(torch.zeros(2))


@dataclasses.dataclass(frozen=True)
class Filled:
    x: torch.Tensor
    items: list = dataclasses.field(default_factory=list)
    size: object = None

    def __post_init__(self):
        object.__setattr__(self, "size", tuple(self.x.shape))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    x: torch.Tensor
    factor: int = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: torch.Tensor
    hidden: int = dataclasses.field(init=False, default=7)
    table: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outer(Filled):
    inner: object = None


@fx.allow_in_graph
def summed(value, *rest, **named):
    """A number of every tensor and number in the fields."""
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        value = sum((summed(item) for item in value), torch.zeros(3))
    if not isinstance(value, (torch.Tensor, int)):
        value = 0
    return value + sum(map(summed, (*rest, *named.values())), torch.zeros(3))


OF_DATACLASSES = {
    "default factory": lambda x, y: summed(Filled(x)),
    "keywords only": lambda x, y: summed(Named(x=x, factor=5), other=Named(x=y)),
    "slots": lambda x, y: summed(Slotted(x, {"y": y})),
    "nested": lambda x, y: summed([Outer(x, [y, 3], inner=(Named(x=y), {"s": Slotted(x)}))], y),
    "replaced": lambda x, y: summed(dataclasses.replace(Named(x=x), factor=y.shape[0])),
    "from outside": lambda x, y: summed(OUTSIDE, x),
}
OUTSIDE = Outer(torch.full((3,), 5.0), [torch.ones(3)], inner=Slotted(X))


@pytest.mark.parametrize("name", OF_DATACLASSES)
def test_allowed_functions_take_frozen_dataclasses(name):
    fn = OF_DATACLASSES[name]
    found, graphs = run(fn, X, X * 3, fullgraph=True)
    assert torch.equal(found, fn(X, X * 3))
    assert len(graphs) == 1
    assert torch.equal(fx.optimize()(fn)(X, X), fn(X, X))
