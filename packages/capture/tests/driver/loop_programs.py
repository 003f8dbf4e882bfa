"""Loops whose bodies break the graph: over every kind of iterable, with what loops do beside.

``compare`` calls a program several times, plainly, compiled, and compiled by torch.compile: results and gradients must be
eager's, and there may not be more graphs than torch.compile makes, but for the loop's last round.
"""

import warnings

import torch
import torch._dynamo
from counting import Counting
from same import difference

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

CALLS = 6
REST = 3
"""Graphs of the last round and what follows the loop: with gradients, without, and where a number turns out to change."""
MOST = 10
EACH_VALUE = frozenset(
    {
        *("items key", "keys", "sorted", "dict grows", "add to list", "tuple grows"),
        *("attribute dict", "pop", "deque", "sizes", "closures"),
    }
)
"""Programs that are compiled for each key or length, up to the limit (docs/limitations.md)."""

BODIES = {
    "list": "for w in [1.0, 2.0, 3.0, 4.0, 5.0]:\n    x = x * w\n    {b}\n    x = x + 1",
    "tensors": "for w in weights:\n    x = x * w\n    {b}\n    x = x + 1",
    "modules": "for m in layers:\n    x = m(x)\n    {b}\n    x = x + 1",
    "sequential": "for m in sequential:\n    x = m(x)\n    {b}",
    "children": "for m in sequential.children():\n    x = m(x)\n    {b}",
    "named": "for name, m in sequential.named_children():\n    x = m(x)\n    {b}",
    "range": "for i in range(10):\n    x = x + 1\n    {b}\n    x = x * 2",
    "range number": "for i in range(10):\n    x = x + i\n    {b}\n    x = x * 0.5",
    "range n": "for i in range(n):\n    x = x + 1\n    {b}",
    "range index": "for i in range(10):\n    x = x + x[i % 3]\n    {b}",
    "zip": "for m, w in zip(layers, weights):\n    x = m(x) * w\n    {b}\n    x = x + 1",
    "enumerate": "for i, m in enumerate(layers):\n    x = m(x) + i\n    {b}\n    x = x + 1",
    "enumerate range": "for i, w in enumerate(weights):\n    x = x * w\n    {b}\n    x = x + 1",
    "items": "for k, w in table.items():\n    x = x * w\n    {b}\n    x = x + 1",
    "items key": "for k, w in table.items():\n    x = x * w + len(k)\n    {b}",
    "values": "for w in table.values():\n    x = x * w\n    {b}",
    "keys": "for k in table:\n    x = x * table[k]\n    {b}",
    "reversed": "for m in reversed(layers):\n    x = m(x)\n    {b}",
    "sorted": "for k in sorted(table):\n    x = x * table[k]\n    {b}",
    "generator": "for w in (w * 2 for w in weights):\n    x = x * w\n    {b}",
    "generator function": "for y in steps(x, 10):\n    x = x + y\n    {b}",
    "generator breaks": "for y in breaking_steps(x, 10):\n    x = x + y",
    "map": "for w in map(torch.sin, weights):\n    x = x * w\n    {b}",
    "chain": "for w in itertools.chain(weights, weights):\n    x = x * w\n    {b}",
    "product": "for i, j in itertools.product(range(3), range(3)):\n    x = x + 1\n    {b}",
    "islice": "for w in itertools.islice(weights, 1, 9):\n    x = x * w\n    {b}",
    "unbind": "for row in x.unbind(0):\n    x = x + row\n    {b}",
    "rows": "for row in x:\n    x = x + row\n    {b}",
    "chunks": "for part in x.split(1):\n    x = x + part\n    {b}",
    "nested": "for i in range(3):\n    x = x + 1\n    for j in range(4):\n        x = x * 2\n        {b}\n    x = x * 0.1",
    "nested outer": "for i in range(9):\n    for j in range(2):\n        x = x * 0.5\n    {b}\n    x = x + 1",
    "while": "i = 0\nwhile i < 10:\n    x = x + 1\n    {b}\n    i += 1",
    "while number": "i = 0\nwhile i < 10:\n    x = x + i\n    {b}\n    i += 1",
    "while tensor": "while x.abs().sum() < 1000:\n    x = x * 1.5",
    "while true": "i = 0\nwhile True:\n    x = x + 1\n    {b}\n    i += 1\n    if i > 10:\n        break",
    "method": "for i in range(10):\n    x = owner.step(x)",
    "method counts": "for i in range(10):\n    x = owner.count(x)",
    "method layers": "for m in layers:\n    x = owner.through(m, x)",
    "helper": "for i in range(10):\n    x = helper(x)\n    x = x + 1",
    "append": "out = []\nfor i in range(10):\n    out.append(x)\n    x = x + 1\n    {b}\nx = torch.stack(out).sum(0)",
    "append read": "out = [x]\nfor i in range(10):\n    out.append(out[-1] * 0.5)\n    {b}\nx = torch.stack(out).sum(0)",
    "append length": "out = []\nfor i in range(10):\n    out.append(x * len(out))\n    {b}\nx = torch.stack(out).sum(0)",
    "dict grows": "out = {{}}\nfor i in range(10):\n    out[i] = x * 0.5\n    {b}\nx = torch.stack(list(out.values())).sum(0)",
    "add to list": "out = []\nfor i in range(10):\n    out += [x]\n    x = x + 1\n    {b}\nx = torch.stack(out).sum(0)",
    "tuple grows": "out = ()\nfor i in range(10):\n    out = (*out, x)\n    x = x + 1\n    {b}\nx = torch.stack(out).sum(0)",
    "no_grad": (
        "for i in range(10):"
        "\n    with torch.set_grad_enabled(i % 2 == 0):\n        x = x + 1\n        {b}\n        x = x * 2"
    ),
    "no_grad inside": "for i in range(10):\n    with torch.no_grad():\n        y = x.sum()\n        {b}\n    x = x + y * 0.01",
    "grad outside": (
        "for i in range(10):\n    torch.set_grad_enabled(i % 2 == 0)\n    x = x + 1"
        "\n    {b}\ntorch.set_grad_enabled(True)"
    ),
    "train and eval": "for i in range(10):\n    sequential.train(i % 2 == 0)\n    x = sequential(x)\n    {b}",
    "sizes": "for i in range(10):\n    x = x + 1\n    {b}\n    y = torch.cat([x, x]) if i % 3 == 0 else x\n    x = x + y.sum()",
    "grows": "y = x\nfor i in range(10):\n    y = torch.cat([y, x])\n    {b}\nx = x + y.sum()",
    "shrinks": "y = torch.cat([x] * 10)\nfor i in range(9):\n    y = y[1:]\n    x = x + y.sum()\n    {b}",
    "slices": "y = torch.cat([x] * 10)\nfor i in range(9):\n    x = x + y[i:i + 2].sum()\n    {b}",
    "to the end": "y = torch.cat([x] * 10)\nfor i in range(9):\n    x = x + y[i:].sum()\n    {b}",
    "continue": "for i in range(10):\n    x = x + 1\n    if i % 3 == 0:\n        continue\n    {b}\n    x = x * 0.5",
    "break out": "for i in range(20):\n    x = x + 1\n    {b}\n    if i == n + 9:\n        break",
    "else": "for i in range(10):\n    x = x + 1\n    {b}\nelse:\n    x = x * 2",
    "try": "for i in range(10):\n    try:\n        x = x + 1\n        {b}\n        x = x * 2\n    finally:\n        x = x - 1",
    "two breaks": "for i in range(10):\n    x = x + 1\n    {b}\n    x = x * 2\n    {b}\n    x = x - 1",
    "two loops": "for i in range(10):\n    x = x + 1\n    {b}\nfor i in range(10):\n    x = x * 0.5\n    {b}",
    "float": "t = 0.0\nfor i in range(10):\n    x = x + t\n    {b}\n    t += 0.1",
    "text": "for name in ['a', 'bb', 'ccc']:\n    x = x * len(name)\n    {b}",
    "functions": "for f in (torch.sin, torch.cos, torch.tanh, torch.sin):\n    x = f(x)\n    {b}",
    "closures": "for f in [lambda t, k=k: t + k for k in range(10)]:\n    x = f(x)\n    {b}",
    "attribute": "owner.total = 0\nfor i in range(10):\n    owner.total += 1\n    x = x + 1\n    {b}\nx = x * owner.total",
    "attribute tensor": "owner.state = x\nfor i in range(10):\n    owner.state = owner.state * 0.5 + 1\n    {b}\nx = owner.state",
    "attribute list": "owner.seen = []\nfor i in range(10):\n    owner.seen.append(x)\n    x = x + 1\n    {b}",
    "attribute dict": "owner.cache = {{}}\nfor i in range(10):\n    owner.cache[i] = x\n    x = x + 1\n    {b}",
    "window": (
        "window = [x, x]\nfor i in range(10):\n    window = [*window[1:], window[0] * 0.5]"
        "\n    {b}\nx = window[0] + window[1]"
    ),
    "pop": "todo = [x * k for k in range(10)]\nwhile todo:\n    x = x + todo.pop()\n    {b}",
    "deque": "todo = collections.deque(x * k for k in range(10))\nwhile todo:\n    x = x + todo.popleft()\n    {b}",
    "index list": "for i in range(len(weights)):\n    x = x * weights[i]\n    {b}",
    "assign": "y = torch.zeros(10, 3)\nfor i in range(10):\n    y[i] = x[0]\n    {b}\nx = x + y.sum()",
    "in place": "x = x.clone()\nfor i in range(10):\n    x.mul_(0.5)\n    {b}",
    "comprehension": "x = torch.stack([helper(x * k) for k in range(10)]).sum(0)",
    "dict comprehension": "x = sum({{k: helper(x * k) for k in range(10)}}.values())",
    "recursive": "x = descend(x, 6)",
    "counter": "x = counted(x)",
}

BREAKS = {
    "call": "STOP()",
    "item": "x = x + 1 if x.sum().item() > 1e9 else x",
    "branch": "x = x * 2 if x.sum() > 1e9 else x",
}

SOURCE = """
import collections
import itertools

def helper(x):
    x = x * 0.5
    {b}
    return x + 1

def steps(x, n):
    for i in range(n):
        yield x * 0.5

def breaking_steps(x, n):
    for i in range(n):
        x = x * 0.5
        {b}
        yield x

def descend(x, n):
    if n == 0:
        return x
    x = x + 1
    {b}
    return descend(x * 0.5, n - 1)

COUNT = 0

def counted(x):
    global COUNT
    for i in range(10):
        COUNT += 1
        x = x + 1
        {b}
    return x

class Owner:
    total, calls = 0, 0

    def step(self, x):
        x = x * 0.5
        {b}
        return x + 1

    def count(self, x):
        self.calls += 1
        x = x * 0.5
        {b}
        return x + 1

    def through(self, m, x):
        x = m(x)
        {b}
        return x + 1

owner = Owner()

def f(x, n):
{body}
    return x
"""


def source(body, stop):
    b = BREAKS[stop]
    lines = BODIES[body].format(b=b).splitlines()
    return SOURCE.format(b=b, body="\n".join("    " + line for line in lines))


def program(body, stop, call):
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(12))
    weights = [torch.rand(3) for _ in range(12)]
    space = {
        "torch": torch,
        "STOP": call,
        "layers": layers,
        "weights": weights,
        "sequential": torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(12))),
        "table": {"k" * (i + 1): w for i, w in enumerate(weights)},
    }
    exec(compile(source(body, stop), f"<{body}>", "exec"), space)
    return space["f"]


def results(f):
    """Of the calls: sizes and numbers vary, and whether gradients are wanted."""
    found = []
    for number in range(CALLS):
        x = torch.linspace(0.1, 1, 9).reshape(3, 3)
        x.requires_grad_(number % 2 == 1)
        y = f(x, 5 + number // 4)
        found.append(y.detach())
        if y.requires_grad:
            y.sum().backward()
            found.append(x.grad)
    return found


def graphs_of_torch(body, stop):
    """How many graphs torch.compile makes; 0 where it gives the frame up, as it does where a ``for`` statement breaks."""
    torch._dynamo.reset()
    backend = Counting()
    results(torch.compile(program(body, stop, torch._dynamo.graph_break), backend=backend))
    return len(backend.graphs)


def compare(body, stop):
    """None, or what differs."""
    backend = Counting()
    compiled = fx.optimize(backend)(program(body, stop, fx.graph_break))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TracingWarning)
        found = results(compiled)
    text = difference(found, results(program(body, stop, lambda: None)))
    if text is not None:
        return text
    said = [str(w.message) for w in caught if issubclass(w.category, TracingWarning)]
    if said and not (body in EACH_VALUE and "recompile_limit" in said[0]):
        return said[0]
    ours, theirs = len(backend.graphs), graphs_of_torch(body, stop)
    bound = theirs + REST if theirs else MOST
    return None if ours <= bound or body in EACH_VALUE else f"{ours} graphs, torch.compile {theirs}"
