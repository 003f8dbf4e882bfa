"""The programs of the page of errors: one that raises each error, and one in which it is mended.

``generate_errors.py`` runs both. ``WITHOUT_PROGRAM`` says why an error has none.
"""

EXAMPLES: dict[str, tuple[str, str]] = {
    "data-dependent-branch": (
        """
@fxstack.compile(fullgraph=True)
def scaled(x):
    if x.sum() > 0:
        return x * 2
    return x


scaled(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def scaled(x):
    return torch.where(x.sum() > 0, x * 2, x)


scaled(torch.ones(3))
""",
    ),
    "data-dependent-number": (
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def scaled(x):
    return x * x.max().item()


scaled(torch.ones(3))
""",
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def scaled(x):
    return x * x.max()


scaled(torch.ones(3))
""",
    ),
    "data-dependent-size": (
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def total(x):
    return x[x > 0].sum()


total(torch.ones(3))
""",
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def total(x):
    return torch.where(x > 0, x, 0).sum()


total(torch.ones(3))
""",
    ),
    "data-dependent-value": (
        """
@fxstack.compile(fullgraph=True)
def changed(x, y):
    return x if torch.equal(x, y) else y


changed(torch.ones(3), torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def changed(x, y):
    return torch.where((x == y).all(), x, y)


changed(torch.ones(3), torch.ones(3))
""",
    ),
    "handled-error": (
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def read(x, at):
    x.add_(1)
    try:
        return x[at]
    except IndexError:
        return x[0]


read(torch.ones(3), torch.tensor([1]))
""",
        """
@fxstack.error_on_graph_break(True)
@fxstack.compile
def read(x, at):
    x = x + 1
    try:
        return x[at]
    except IndexError:
        return x[0]


read(torch.ones(3), torch.tensor([1]))
""",
    ),
    "unsupported-call": (
        """
import decimal


@fxstack.compile(fullgraph=True)
def scaled(x, rate):
    return x * float(decimal.Decimal(rate) * 2)


scaled(torch.ones(3), "0.1")
""",
        """
import decimal


@fxstack.compile(fullgraph=True)
def scaled(x, rate):
    return x * rate


scaled(torch.ones(3), float(decimal.Decimal("0.1") * 2))
""",
    ),
    "fake-function": (
        """
@torch.library.custom_op("examples::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    raise NotImplementedError("the size is not known")


@fxstack.compile(fullgraph=True)
def f(x):
    return doubled(x) + 1


f(torch.ones(3))
""",
        """
@torch.library.custom_op("examples::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


@fxstack.compile(fullgraph=True)
def f(x):
    return doubled(x) + 1


f(torch.ones(3))
""",
    ),
    "side-effect-call": (
        """
import time


@fxstack.compile(fullgraph=True)
def slow(x):
    time.sleep(0.001)
    return x * 2


slow(torch.ones(3))
""",
        """
import time


@fxstack.compile(fullgraph=True)
def doubled(x):
    return x * 2


time.sleep(0.001)
doubled(torch.ones(3))
""",
    ),
    "debugger": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    breakpoint()
    return x * 2


f(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x * 2


f(torch.ones(3))
""",
    ),
    "disabled": (
        """
@fxstack.disable
def noisy(x):
    return x + torch.rand(3)


@fxstack.compile(fullgraph=True)
def f(x):
    return noisy(x) * 2


f(torch.ones(3))
""",
        """
def noisy(x):
    return x + torch.rand(3)


@fxstack.compile(fullgraph=True)
def f(x):
    return noisy(x) * 2


f(torch.ones(3))
""",
    ),
    "disallowed": (
        """
@fxstack.disallow_in_graph
def sine(x):
    return x.sin()


@fxstack.compile(fullgraph=True)
def f(x):
    return sine(x) * 2


f(torch.ones(3))
""",
        """
def sine(x):
    return x.sin()


@fxstack.compile(fullgraph=True)
def f(x):
    return sine(x) * 2


f(torch.ones(3))
""",
    ),
    "forbidden": (
        """
@fxstack.forbid_in_graph
def load():
    return torch.ones(3)


@fxstack.compile
def f(x):
    return x + load()


f(torch.ones(3))
""",
        """
@fxstack.forbid_in_graph
def load():
    return torch.ones(3)


@fxstack.compile
def f(x, y):
    return x + y


f(torch.ones(3), load())
""",
    ),
    "skipped-by-backend": (
        """
from fxstack_capture import SkipFrame


def backend(graph, inputs):
    raise SkipFrame("no matrix product")


@fxstack.compile(backend=backend, fullgraph=True)
def f(x):
    return x * 2


f(torch.ones(3))
""",
        """
from fxstack_capture import SkipFrame


def backend(graph, inputs):
    raise SkipFrame("no matrix product")


@fxstack.compile(backend=backend)
def f(x):
    return x * 2


f(torch.ones(3))
""",
    ),
    "unsupported-by-backend": (
        """
from torch._subclasses.fake_tensor import UnsupportedOperatorException


def backend(graph, inputs):
    raise UnsupportedOperatorException(torch.ops.aten.mul.Tensor)


@fxstack.compile(backend=backend, fullgraph=True)
def f(x):
    return x * 2


f(torch.ones(3))
""",
        """
@fxstack.compile(backend="eager", fullgraph=True)
def f(x):
    return x * 2


f(torch.ones(3))
""",
    ),
    "operator-function": (
        """
seen = []


@fxstack.compile(fullgraph=True)
def f(x):
    def sine(x):
        seen.append("sine")
        return x.sin()

    return torch.cond(x.sum() > 0, sine, torch.cos, (x,))


f(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


f(torch.ones(3))
""",
    ),
    "user-break": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    x = x * 2
    fxstack.graph_break()
    return x + 1


f(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    x = x * 2
    return x + 1


f(torch.ones(3))
""",
    ),
    "user-skip": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    fxstack.skip_frame()
    return x + 1


f(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x + 1


f(torch.ones(3))
""",
    ),
    "replaced-by-program": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x + 1


original = torch.Tensor.__add__
torch.Tensor.__add__ = lambda a, b: original(a, b)
try:
    f(torch.ones(3))
finally:
    del torch.Tensor.__add__
""",
        """
def added(a, b):
    return a + b


@fxstack.compile(fullgraph=True)
def f(x):
    return added(x, 1)


f(torch.ones(3))
""",
    ),
    "unsupported-object": (
        """
@fxstack.compile(fullgraph=True)
def f(xs):
    return next(xs) * 2


f(x for x in [torch.ones(3)])
""",
        """
@fxstack.compile(fullgraph=True)
def f(xs):
    return xs[0] * 2


f([torch.ones(3)])
""",
    ),
    "escaping-object": (
        """
class File:
    def __del__(self):
        print("closed")


@fxstack.compile(fullgraph=True)
def f(x):
    return x * 2, File()


f(torch.ones(3))
""",
        """
class File:
    def __del__(self):
        print("closed")


@fxstack.compile(fullgraph=True)
def f(x, file):
    return x * 2, file


f(torch.ones(3), File())
""",
    ),
    "unsupported-bytecode": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    async def later():
        return x * 2

    try:
        later().send(None)
    except StopIteration as done:
        return done.value


f(torch.ones(3))
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x * 2


async def later(x):
    return f(x)


import asyncio

asyncio.run(later(torch.ones(3)))
""",
    ),
    "unsupported-tensor": (
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x * 2


f(torch.eye(3).to_sparse())
""",
        """
@fxstack.compile(fullgraph=True)
def f(x):
    return x * 2


f(torch.eye(3).to_sparse().to_dense())
""",
    ),
    "inline-limit": (
        """
def power(x, n):
    return x if n == 0 else power(x, n - 1) * x


@fxstack.compile(fullgraph=True, options={"inline_limit": 20})
def f(x):
    return power(x, 30)


f(torch.ones(3))
""",
        """
def power(x, n):
    result = x
    for _ in range(n):
        result = result * x
    return result


@fxstack.compile(fullgraph=True, options={"inline_limit": 20})
def f(x):
    return power(x, 30)


f(torch.ones(3))
""",
    ),
    "plain-python": (
        """
import builtins


@fxstack.compile(fullgraph=True)
def f(x):
    return x * len(x)


original, builtins.len = len, lambda value: original(value)
try:
    f(torch.ones(3))
finally:
    builtins.len = original
""",
        """
@fxstack.compile(fullgraph=True)
def f(x, length):
    return x * length(x)


f(torch.ones(3), lambda value: len(value))
""",
    ),
}

WITHOUT_PROGRAM = {
    "tracing-error": "a program that raises it shows a defect, which we mend",
    "internal-error": "a program that raises it shows a defect, which we mend",
}
