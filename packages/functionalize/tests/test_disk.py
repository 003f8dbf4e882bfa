"""Programs from a store: not traced again, equal to eager, told apart by everything that they depend on."""

import copy
import json

import pytest
import torch
from helpers import run_graph, save_everything
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from fxstack_functionalize import aot
from fxstack_functionalize.disk.program import from_json, to_json
from fxstack_functionalize.metadata.records import OutputInfo, OutputSource
from fxstack_interchange import LoadError, SaveError


class Shelves:
    """A store in memory. A compiled graph's form is a number; its graph is made again to be loaded."""

    salt = "tests"

    def __init__(self):
        self.documents, self.remakes = {}, []

    def read(self, key):
        text = self.documents.get(key)
        return None if text is None else json.loads(text)

    def write(self, key, document):
        self.documents[key] = json.dumps(document)

    def pack(self, compiled):
        return 1

    def unpack(self, record, graph):
        assert record == 1
        return lambda *args: graph()(*args)

    def used(self, remake):
        self.remakes.append(remake)


def compiled(fn, store, *inputs, **options):
    graph = torch.fx.symbolic_trace(fn)
    return aot(graph, inputs, fw_compiler=run_graph, partitioner=save_everything, store=store, **options)


def step(fn, inputs, results=None):
    """Outputs, gradients, and the inputs as they are afterwards."""
    copies = [copy.deepcopy(t.detach()).requires_grad_(t.requires_grad) for t in inputs]
    used = [t.clone() if t.requires_grad else t for t in copies]
    outputs = fn(*used)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    losses = [o.sum() for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if losses:
        sum(losses).backward()
    return [*outputs, *(t.grad for t in copies), *used]


def same_twice(fn, *inputs):
    """Compile and run with an empty store, then with the filled one."""
    store = Shelves()
    example = [t.clone() if t.requires_grad else t.clone() for t in inputs]
    for found in (0, 1):
        made = compiled(fn, store, *example)
        assert (len(store.remakes) > 0) == bool(found and any(t.requires_grad for t in inputs))
        torch.testing.assert_close(step(made, inputs), step(fn, inputs))
    assert len(store.documents) == 1
    return store


X, Y = torch.randn(3, 4), torch.randn(3, 4)
G = torch.randn(3, 4, requires_grad=True)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda x: (x.sin() + 1,), (X,)),
        (lambda x: (x.t(), x * 2, 7), (X,)),
        (lambda x, y: (x.add_(y), x[0]), (X, Y)),
        (lambda x: ((x * x).sum(), x.view(4, 3)), (G,)),
        (lambda x, y: (x.mul_(y), (x.exp() * y).t(), None), (G, Y)),
    ],
)
def test_a_program_from_the_store_does_what_eager_does(fn, inputs):
    same_twice(fn, *inputs)


def test_inputs_that_share_memory_are_merged_again():
    def fn(a, b):
        a.add_(1)
        return (a + b,)

    store = Shelves()
    for _ in range(2):
        base = torch.arange(6.0)
        made = compiled(fn, store, base[:4], base[2:])
        other = torch.arange(6.0)
        torch.testing.assert_close(made(other[:4], other[2:]), fn(base[:4], base[2:]))
        torch.testing.assert_close(other, base)
    assert len(store.documents) == 1


def views_of_one(first, second):
    leaf = torch.arange(12.0, requires_grad=True)
    whole = leaf.view(3, 4) * 1.0
    made = first(whole), second(whole)
    made[1].root = leaf
    return made


def test_views_of_one_tensor_with_a_gradient_are_merged_again():
    def fn(a, b):
        a.mul_(2)
        return (a.sum() * b.sin(),)

    parts = lambda: views_of_one(lambda x: x[0], lambda x: x)
    store = Shelves()
    for found in (0, 1):
        made = compiled(fn, store, *parts())
        results = []
        for run in (made, fn):
            a, b = parts()
            (result,) = run(a, b)
            results.append([result, *torch.autograd.grad(result.sum() + a.sum(), b.root)])
        torch.testing.assert_close(*results)
        assert bool(store.remakes) is bool(found)
    assert len(store.documents) == 1


def test_views_of_one_tensor_and_a_detached_one_have_another_key():
    fn = lambda x, y: (x + y,)
    of_one = views_of_one(lambda x: x[0], lambda x: x[1])
    of_two = views_of_one(lambda x: x[0], lambda x: x.detach().requires_grad_()[1])
    assert keys_of((fn, *of_one), (fn, *of_two)) == 2


def keys_of(*programs):
    """How many documents these (function, inputs) make."""
    store = Shelves()
    for fn, *inputs in programs:
        compiled(fn, store, *inputs)
    return len(store.documents)


@pytest.mark.parametrize(
    "other",
    [
        (lambda x: (x.sin() + 2,), X),
        (lambda x: (x.cos() + 1,), X),
        (lambda x: (x.sin() + 1.0,), X),
        (lambda x: (x.sin() + 1,), X.double()),
        (lambda x: (x.sin() + 1,), X.t()),
        (lambda x: (x.sin() + 1,), X[:2]),
        (lambda x: (x.sin() + 1, x), X),
    ],
)
def test_what_differs_has_another_key(other):
    assert keys_of((lambda x: (x.sin() + 1,), X), other) == 2


def test_the_same_program_has_one_key():
    assert keys_of((lambda x: (x.sin() + 1,), X), (lambda x: (x.sin() + 1,), X.clone())) == 1


def test_inputs_on_one_storage_have_another_key():
    fn = lambda x, y: (x + y,)
    assert keys_of((fn, X, Y), (fn, X, X.view(3, 4))) == 2


@torch.library.custom_op("fxstack_disk::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x + 1


own.register_fake(lambda x: torch.empty_like(x))


def test_custom_operators_are_kept():
    same_twice(lambda x: (torch.ops.fxstack_disk.own(x) * 2,), X)


def test_operators_of_which_not_all_is_known_are_not_kept():
    with torch.library._scoped_library("fxstack_disk_plain", "DEF") as library:
        library.define("own(Tensor x) -> Tensor")
        library.impl("own", lambda x: x + 1, "CompositeImplicitAutograd")
        assert keys_of((lambda x: (torch.ops.fxstack_disk_plain.own(x),), X)) == 0


class Applied:
    """A call of a custom function as captured graphs have it, with what its meaning follows from."""

    def __init__(self, function):
        self.function = self.__fxstack_parts__ = function
        self.__name__ = self.__qualname__ = "applied"

    def __call__(self, *args):
        return self.function.apply(*args)


def times(factor):
    """A custom function whose gradient is wrong by a factor."""

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos() * factor

    return Times


def applied(function):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(Applied(function), (x,)),))
    return torch.fx.GraphModule({}, graph)


def test_custom_functions_are_kept_by_their_code():
    store = Shelves()
    for factor in (2, 3, 2, 3):
        x = G.detach().requires_grad_()
        made = aot(
            applied(times(factor)), (x,), fw_compiler=run_graph, partitioner=save_everything, store=store
        )
        made(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos() * factor)
    assert (len(store.documents), len(store.remakes)) == (2, 2)


def test_a_forward_is_kept_alone_until_its_backward_has_run():
    store, fn = Shelves(), lambda x: ((x * x).sum(),)
    compiled(fn, store, G)
    (forward,) = store.documents.values()
    for _ in range(2):
        x = G.detach().requires_grad_()
        made = compiled(fn, store, x)
        made(x)[0].backward()
        torch.testing.assert_close(x.grad, 2 * x.detach())
        (whole,) = store.documents.values()
        assert whole != forward
    assert len(store.remakes) == 2


def test_a_backward_without_a_form_leaves_room_for_the_next():
    store, fn = Shelves(), lambda x: ((x * x).sum(), x.sin().sum())
    made = compiled(fn, store, G)
    (forward,) = store.documents.values()
    store.pack = lambda graph: None
    made(G)[0].backward()
    assert [*store.documents.values()] == [forward]
    del store.pack
    made(G)[1].backward()
    assert [*store.documents.values()] != [forward]


def sized(*numbers):
    """Matrices of ``numbers`` rows, each an example with symbols of its own."""
    return [torch.linspace(-1, 1, 4 * n).reshape(n, 4).requires_grad_() for n in numbers]


def symbolic(fn, store, x):
    """Compile for any number of rows; the guards that this made."""
    env = ShapeEnv()
    kind = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    fake = FakeTensorMode(shape_env=env).from_tensor(x, symbolic_context=kind)
    return compiled(fn, store, fake), [str(guard.expr) for guard in env.guards]


def halves(x):
    return (x[: x.shape[0] // 2] * 2).sum(), x[:6] * 3, x.view(-1), x.t()[1:]


@pytest.mark.parametrize("fn", [halves, lambda x: (x.mul(2).t(), torch.cat([x, x]).exp().sum(0))])
def test_symbolic_sizes(fn):
    store = Shelves()
    first, guards = symbolic(fn, store, *sized(9))
    again, same = symbolic(fn, store, *sized(7))
    assert len(store.remakes) == 1
    assert guards == same
    for x in sized(7, 12, 20):
        torch.testing.assert_close(step(again, [x]), step(fn, [x]))


def test_other_decisions_by_sizes_are_compiled_anew():
    store = Shelves()
    for x in sized(9, 5, 9):
        made, guards = symbolic(halves, store, x)
        torch.testing.assert_close(step(made, [x]), step(halves, [x]))
    assert not store.remakes


def test_numbers_that_depend_on_data_are_not_kept():
    store = Shelves()
    graph = torch.fx.symbolic_trace(lambda x: (x * 2,))
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        many = torch.empty(mode.shape_env.create_unbacked_symint(), 4)
    aot(graph, [many], fw_compiler=run_graph, partitioner=save_everything, store=store)
    assert not store.documents


@pytest.mark.parametrize("damage", [None, [], {"format": 0}, {}, "text"])
def test_damaged_documents_are_compiled_anew(damage):
    store, fn = Shelves(), lambda x: (x.sin(),)
    compiled(fn, store, X)
    (key,) = store.documents
    intact = store.documents[key]
    store.documents[key] = json.dumps(damage)
    assert torch.equal(compiled(fn, store, X)(X)[0], X.sin())
    assert store.documents[key] == intact


def test_every_field_of_a_document_is_checked():
    store, fn = Shelves(), lambda x: ((x * x).sum(),)
    compiled(fn, store, G)(G)[0].backward()
    (key,) = store.documents
    whole = json.loads(store.documents[key])
    for name in whole:
        store.documents[key] = json.dumps({k: v for k, v in whole.items() if k != name})
        assert torch.equal(compiled(fn, store, G)(G)[0], (G * G).sum())


def test_a_graph_that_cannot_be_loaded_is_compiled_anew():
    store, fn = Shelves(), lambda x: (x.sin(),)
    compiled(fn, store, X)
    store.unpack = lambda record, graph: 1 / 0
    assert torch.equal(compiled(fn, store, X)(X)[0], X.sin())


def test_a_backward_that_cannot_be_loaded_is_compiled_anew():
    store, fn = Shelves(), lambda x: ((x * x).sum(),)
    compiled(fn, store, G)(G)[0].backward()
    made = compiled(fn, store, G)
    store.unpack = lambda record, graph: 1 / 0
    x = G.detach().requires_grad_()
    made(x)[0].backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_a_program_from_the_store_is_traced_in_the_state_it_was_traced_in_first():
    store, fn = Shelves(), lambda x: ((x @ x.t()).sum(),)
    with torch.autocast("cpu", torch.bfloat16):
        compiled(fn, store, G)(G)[0].backward()
        made = compiled(fn, store, G)
    x = G.detach().requires_grad_()
    with torch.no_grad():
        joint = [remake() for remake in store.remakes]
    assert any("bfloat16" in str(part.forward.graph_module.code) for part in joint)


def test_saved_tensor_hooks_are_inlined_into_a_program_from_the_store():
    store, fn = Shelves(), lambda x: ((x.sin() * x).sum(),)
    compiled(fn, store, G)(G)[0].backward()
    made = compiled(fn, store, G)
    x = G.detach().requires_grad_()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float())
    with hooks:
        loss = made(x)[0]
    loss.backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() + x.detach().sin(), atol=1e-2, rtol=1e-2)


def test_gradients_of_gradients_of_a_program_from_the_store():
    store, fn = Shelves(), lambda x: ((x * x * x).sum(),)
    compiled(fn, store, G)(G)[0].backward()
    x = G.detach().requires_grad_()
    (first,) = torch.autograd.grad(compiled(fn, store, x)(x)[0], x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


class Text(str):
    """Not plain text."""

    __slots__ = ()


@pytest.mark.parametrize("value", [Text("a"), True, 1.5, float("inf"), None, torch.float16, [1, (2,)]])
def test_constants_come_back_as_they_were_or_are_refused(value):
    info = OutputInfo(OutputSource.CONSTANT, is_tensor=False, constant=value)
    if type(value) is Text:
        with pytest.raises(SaveError, match="Text has no form"):
            to_json(info)
    else:
        assert from_json(json.loads(json.dumps(to_json(info))), int) == info


@pytest.mark.parametrize(
    "content", [{}, {"record": "X"}, {"enum": "OutputSource", "name": "z"}, {"view": "eval"}, 3]
)
def test_malformed_records_are_load_errors(content):
    with pytest.raises(LoadError):
        from_json(content, int)
