"""Callables of any kind are compiled as the root of a call: operators, partials, methods, instances, interpreters."""

import functools
import operator

import pytest
import torch
from torch import fx, nn

from fxstack_capture import optimize

X = torch.arange(3.0) + 1


@torch.library.custom_op("capture_roots::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Callable:
    scale = 3

    def __call__(self, x):
        return x * self.scale

    def method(self, x):
        return x + self.scale

    @classmethod
    def of_class(cls, x):
        return x - cls.scale

    static = staticmethod(torch.sin)
    part = functools.partialmethod(lambda self, x, n: x * n + self.scale, n=4)


class Operator:
    __call__ = functools.partial(torch.add, X)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 1)

    def forward(self, x):
        return self.out(self.layer(x))


MODEL = Model()
TRACED = fx.symbolic_trace(MODEL)
INSTANCE = Callable()
ROOTS = {
    "custom operator": twice,
    "overload": torch.ops.capture_roots.twice.default,
    "packet": torch.ops.capture_roots.twice,
    "partial of an operator": functools.partial(twice),
    "partial of partials": functools.partial(functools.partial(torch.add, alpha=2), X),
    "partial of an instance": functools.partial(INSTANCE),
    "method": INSTANCE.method,
    "class method": Callable.of_class,
    "static method": INSTANCE.static,
    "partial method": INSTANCE.part,
    "instance": INSTANCE,
    "instance with an operator": Operator(),
    "builtin": torch.sin,
    "descriptor": torch.Tensor.sin,
    "bound": X.add,
    "reflected": functools.partial(operator.add, 2),
    "methodcaller": operator.methodcaller("sum", 0),
    "attrgetter": operator.attrgetter("T"),
    "functional": nn.functional.relu,
    "functional with checks": functools.partial(nn.functional.layer_norm, normalized_shape=(3,)),
    "map": torch.vmap(torch.sin),
    "gradient": torch.func.grad(lambda x: x.sin().sum()),
    "call of a module": MODEL.__call__,
    "call of a graph": TRACED,
    "interpreter": fx.Interpreter(TRACED).run,
    "interpreter inside": lambda x: fx.Interpreter(TRACED).run(x) + 1,
    "interpreter that keeps values": lambda x: fx.Interpreter(TRACED, garbage_collect_values=False).run(x),
}


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_roots(name):
    fn = ROOTS[name]
    graphs = []
    compiled = optimize(lambda module, _: graphs.append(module) or module.forward, fullgraph=True)(fn)
    assert torch.equal(compiled(X), fn(X))
    assert len(graphs) == 1


def test_interpreters_of_other_graphs_are_interpreted():
    traced = fx.symbolic_trace(MODEL)
    traced.graph.find_nodes(op="output")[0].args = (traced.graph.find_nodes(op="placeholder")[0],)
    fn = lambda x: fx.Interpreter(traced).run(x)  # noqa: E731
    assert torch.equal(optimize()(fn)(X), X)


def test_layers_of_unflattened_programs():
    unflattened = torch.export.unflatten(torch.export.export(MODEL, (X,)))
    graphs = []
    compiled = optimize(lambda module, _: graphs.append(module) or module.forward, fullgraph=True)
    unflattened.layer._compiled_call_impl = compiled(unflattened.layer._call_impl)
    assert torch.allclose(unflattened(X), MODEL(X))
    assert len(graphs) == 1


class Sharing(nn.Module):
    """A layer inside of a layer, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.shared = nn.Linear(3, 3)

    def forward(self, x):
        return self.shared(self.inner(self.shared(x)))


def test_parts_of_unflattened_programs():
    model = Sharing()
    unflattened = torch.export.unflatten(torch.export.export(model, (X,)))
    assert torch.allclose(
        optimize()(unflattened)(X), model(X)
    )  # torch disables the preparation of the inputs
    for name in ("inner", "inner.0", "shared"):
        part, own = unflattened.get_submodule(name), model.get_submodule(name)
        compiled = optimize(fullgraph=True)(lambda x, part=part: part(x) + part(x))
        assert torch.allclose(compiled(X), 2 * own(X))
        part.forward = optimize(fullgraph=True)(part.forward)
    assert torch.allclose(unflattened(X), model(X))
