"""Under ``fullgraph=True`` nothing runs in plain Python: a call that would is an error that names the reason."""

import functools
import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(3)


def compiled(fn):
    return fx.optimize(fullgraph=True)(fn)


@functools.lru_cache
def table(size):
    return torch.arange(size)


def raises_while_traced(x):
    if torch.compiler.is_compiling():
        raise ValueError("not compiled")
    return x + 1


def skipping(_graph_module, _inputs):
    raise fx.SkipFrame("not this one")


FORBIDDEN = {
    "torch's mark": (torch.compiler.disable(lambda x: x + 1), "excluded from compilation"),
    "our mark": (fx.disable(lambda x: x + 1), "a function of the compiler"),
    "raises": (raises_while_traced, "which plain Python does not raise"),
    "a cache": (lambda x: x + table(3), "cache does not hold the result"),
    "a script": (torch.jit.script(torch.nn.Linear(3, 3)), "cannot be traced"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(name):
    fn, why = FORBIDDEN[name]
    with pytest.raises(fx.Unsupported, match=re.escape(why)):
        compiled(fn)(X)


def test_forbidden_under_modes_and_transforms():
    fn = compiled(lambda x: x + 1)
    with pytest.raises(fx.Unsupported, match="under a mode"), FlopCounterMode(display=False):
        fn(X)
    with pytest.raises(fx.Unsupported, match="a transform"):
        torch.vmap(fn)(X)
    assert torch.equal(fn(X), X + 1)


def test_forbidden_by_the_backend():
    with pytest.raises(fx.Unsupported, match="not this one"):
        fx.optimize(skipping, fullgraph=True)(lambda x: x + 1)(X)


def test_generators_are_refused():
    def generate(x):
        yield x + 1

    with pytest.raises(fx.Unsupported, match="generator"):
        compiled(generate)


@torch.compiler.nested_compile_region
def region(x):
    return x.sin()


TAKEN = {
    "a region": lambda x: region(x) + 1,
    "the argument": lambda x: x,
    "a number": lambda _: 3,
    "a partial": functools.partial(torch.add, torch.ones(3)),
    "a decorated one": torch.no_grad()(lambda x: x + 1),
    "a cached one": lambda x: x + len(re.findall("a", "banana")),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    fn = compiled(TAKEN[name])
    for _ in range(2):
        torch.testing.assert_close(fn(X), TAKEN[name](X))


def test_programs_that_raise_do_so():
    def fn(x):
        raise KeyError(x.shape[0])

    with pytest.raises(KeyError, match="3"):
        compiled(fn)(X)


class Keyword(torch.nn.modules.lazy.LazyModuleMixin, torch.nn.Module):
    """A lazy module that keeps its class, and takes its input by keyword."""

    cls_to_become = None

    def __init__(self):
        super().__init__()
        self.w = torch.nn.UninitializedParameter()

    def initialize_parameters(self, *, x, scale=1.0):
        if self.has_uninitialized_params():
            self.w.materialize((x.shape[-1],))
            torch.nn.init.normal_(self.w)

    def forward(self, *, x, scale=1.0):
        return x * self.w * scale


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Dropout(0.5), torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d()
        self.layers, self.keyword = torch.nn.Sequential(*layers), Keyword()

    def forward(self, x, *, scale):
        return self.keyword(x=self.layers(x).relu(), scale=scale)


LAZY = {
    "linear": (lambda: torch.nn.LazyLinear(2), lambda call: call(torch.ones(2, 3))),
    "named": (lambda: torch.nn.LazyLinear(2), lambda call: call(input=torch.ones(2, 3))),
    "keyword": (Keyword, lambda call: call(x=torch.ones(2, 3), scale=2.0)),
    "nested": (Nested, lambda call: call(torch.ones(2, 3), scale=2.0)),
}


@pytest.mark.parametrize("kind", ["module", "function", "method"])
@pytest.mark.parametrize("name", LAZY)
def test_lazy_modules_are_initialised_by_their_first_call(name, kind):
    make, run = LAZY[name]

    def seen(compiled):
        torch.manual_seed(0)
        module = make()
        called = {"module": module, "function": lambda *a, **k: module(*a, **k), "method": module.__call__}[
            kind
        ]
        call = compiled(called)
        values = [run(call).tolist() for _ in range(3)]
        return (
            values,
            [(n, p.tolist()) for n, p in module.named_parameters()],
            [type(m) for m in module.modules()],
        )

    graphs = []
    whole = fx.optimize(lambda module, _: graphs.append(module) or module.forward, fullgraph=True)
    assert seen(whole) == seen(lambda fn: fn)
    assert len(graphs) == 1
