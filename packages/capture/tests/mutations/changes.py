"""Random changes of a world, as statements that can be run in each of its copies.

A change starts at a place (an expression), walks down to something reachable from there, and replaces, removes, adds or
reorders. Nothing here knows what guards look at.
"""

import collections
import functools
import types

import torch

NUMBERS = ["0", "1", "-1", "7", "True", "2.5", "-0.0", "0.0", "float('nan')", "2**70", "None", "'t'"]
STRINGS = ["'other'", "'base'", "''", "Text('box')", "None", "3"]
FUNCTIONS = [
    "double",
    "halve",
    "(lambda self, x=1.0: x * 3)",
    "(lambda x, *a, **k: x - 1)",
    "torch.relu",
    "torch.neg",
    "closed",
    "functools.partial(torch.add, other=2)",
    "METHOD",
]
TENSORS = [
    "torch.ones(4)",
    "torch.ones(4, dtype=torch.float64)",
    "torch.ones(4, dtype=torch.int64)",
    "torch.ones(4, dtype=torch.bool)",
    "torch.ones(4, dtype=torch.complex64)",
    "torch.ones(4, requires_grad=True)",
    "(torch.ones(4, requires_grad=True) * 2)",
    "nn.Parameter(torch.ones(4))",
    "torch.ones(8)[::2]",
    "torch.ones(8)[4:]",
    "torch.ones(1).expand(4)",
    "torch.ones(1)",
    "torch.ones(())",
    "torch.ones(1, 4)",
    "torch.ones(2, 4)",
    "torch.ones(4, 2).t()",
    "torch.ones(3, 4)",
    "torch.ones(5)",
    "torch.ones(0)",
    "torch.ones(2, 0)",
    "TENSOR",
    "TENSOR[:]",
    "VIEW",
    "args[0]",
    "args[0].detach()",
    "args[0].view(-1)",
    "box.weight",
    "1.5",
    "None",
    "torch._conj(torch.ones(4, dtype=torch.complex64))",
    "torch.ones(4).to_sparse()",
    "torch.ones(4, device='cpu').view(torch.int32)",
    "torch.ones(2, 4, 1, 1).to(memory_format=torch.channels_last)[..., 0, 0]",
]
OBJECTS = ["box", "other", "Box(9.0)", "Other()", "None", "sized", "dynamic", "config", "slotted", "net"]
MODULES = ["nn.Linear(4, 4)", "nn.Identity()", "nn.Tanh()", "Block(False)", "nn.Sequential(nn.ReLU())"]
CONTAINERS = [
    "[1, 2.0, torch.ones(4)]",
    "(1, 2.0, 3)",
    "{'a': 1.0, 'b': 2}",
    "[]",
    "{}",
    "collections.OrderedDict(a=3.0, b=4)",
]
OTHERS = [
    "range(2)",
    "np.float32(1.5)",
    "np.int64(3)",
    "slice(1, 3)",
    "torch.float64",
    "frozenset({'a'})",
    "Color.BLUE",
    "None",
    "collections.deque([3.0])",
]

CLASSES = ["Box", "Other", "Base", "Sized", "Dynamic", "type('New', (Box,), dict(rate=6.0))"]

METHODS = {
    "__len__": "lambda self: 3",
    "__bool__": "lambda self: False",
    "__eq__": "lambda self, o: False",
    "__call__": "lambda self, x: x * 4",
    "__getitem__": "lambda self, k: 0.75",
    "__contains__": "lambda self, k: False",
    "__iter__": "lambda self: iter([4])",
    "__getattr__": "lambda self, n: 0.625",
    "__getattribute__": "lambda self, n: object.__getattribute__(self, n)",
    "__setattr__": "lambda self, n, v: object.__setattr__(self, n, v)",
    "__add__": "lambda self, o: o - 8",
    "__enter__": "lambda self: 5",
    "__get__": "lambda self, i, o=None: 0.375",
    "__set__": "lambda self, i, v: None",
    "value": "property(lambda self: 11.0)",
    "scale": "lambda self, x: x - 2",
    "rate": "13.0",
    "tag": "'abc'",
    "extra": "0.875",
    "missing": "1.125",
    "forward": "lambda self, x: x + 6",
    "shift": "4.5",
    "size": "1",
    "field": "9.5",
    "gain": "2.25",
    "factor": "8.0",
    "training": "property(lambda self: False)",
}

MODES = [
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.inference_mode()",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
    "torch.autocast('cpu', enabled=False)",
    "torch.device('cpu')",
    "default_dtype(torch.float64)",
    "deterministic()",
    "threads(3)",
    "torch._C.DisableTorchFunction()",
    "torch._C.DisableTorchFunctionSubclass()",
    "function_mode()",
    "dispatch_mode()",
    "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)",
    "global_hook()",
    "torch.autograd.forward_ad.dual_level()",
]


MODULE_CHANGES = [
    ("{e}.train(not {e}.training)", None),
    ("{e}.register_forward_hook(lambda m, a, o: o * 2)", None),
    ("{e}.register_forward_pre_hook(lambda m, a: (a[0] + 1,))", None),
    ("{e}.register_full_backward_hook(lambda m, i, o: None)", None),
    ("{e}._forward_hooks.clear()", None),
    ("{e}.register_buffer({new}, torch.full((4,), 2.0))", ["'mean'", "'extra'"]),
    ("{e}.register_parameter('extra', nn.Parameter(torch.ones(4)))", None),
    ("{e}.add_module({new})", [f"{n}, {{module}}" for n in ("'act'", "'linear'", "'zzz'")]),
    ("{e}.requires_grad_({new})", ["False", "True"]),
    ("{e}.to({new})", ["torch.float64", "torch.float32"]),
    ("{e}.forward = {new}", ["lambda x: x * 3", "double"]),
    ("{e}.flag = {new}", NUMBERS),
    ("{e}.__class__ = {new}", ["Block", "Net", "nn.Identity", "nn.Tanh"]),
    ("del {e}.{new}", ["flag", "mean", "linear", "forward", "gain"]),
    ("{e}.half = {new}", NUMBERS),
    ("{e}.load_state_dict({{k: v * 2 for k, v in {e}.state_dict().items()}})", None),
    ("{e}.weight = nn.Parameter(torch.ones(4, 4) * 0.5)", None),
]
"""Statements on a module ``e``, and what may stand for ``new`` in them."""
TENSOR_CHANGES = [
    ("{e}.requires_grad_({new})", ["True", "False"]),
    ("{e}.data = {new}", TENSORS[:24]),
    ("{e}.data = {e}.data.double()", None),
    ("{e}.t_()", None),
    ("{e}.detach_()", None),
    ("{e}.resize_({new}).fill_(0.5)", ["1", "2, 1", "3"]),  # what it grows by is not set
    ("{e}.set_({new})", ["torch.ones(4)", "torch.ones(8)[4:]", "TENSOR"]),
    ("{e}.as_strided_((4,), ({new},))", ["0", "1"]),
    ("{e}.squeeze_()", None),
    ("{e}.unsqueeze_(0)", None),
    ("{e}.mul_(2)", None),
    ("{e}.grad = torch.ones_like({e})", None),
    ("{e}.tagged = {new}", NUMBERS),
    ("{e}.__class__ = {new}", ["nn.Parameter", "torch.Tensor"]),
]
"""The same on a tensor."""


def _from_table(table, e, rng):
    for statement, choices in table:
        new = rng.choice(choices) if choices else ""
        if "{module}" in new:
            new = new.format(module=rng.choice(MODULES))
        yield statement.format(e=e, new=new)


def values_like(value):
    """Expressions of things that could stand where ``value`` stands."""
    if isinstance(value, torch.nn.Module):
        return MODULES
    if isinstance(value, torch.Tensor):
        return TENSORS
    if isinstance(value, (bool, int, float)):
        return NUMBERS
    if isinstance(value, str):
        return STRINGS
    if isinstance(value, (list, dict, tuple, set)):
        return CONTAINERS
    if callable(value) and not isinstance(value, type):
        return FUNCTIONS
    if value is None or hasattr(value, "__dict__"):
        return OBJECTS
    return OTHERS


def children(expression, value):
    """(expression, value, can it be assigned to) of what is directly reachable."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            if isinstance(key, (str, int, tuple)):
                yield f"{expression}[{key!r}]", item, True
    elif isinstance(value, (list, collections.deque)):
        for index, item in enumerate(value):
            yield f"{expression}[{index}]", item, True
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield f"{expression}[{index}]", item, False
    elif isinstance(value, types.FunctionType):
        yield f"{expression}.__defaults__", value.__defaults__, True
        for index, cell in enumerate(value.__closure__ or ()):
            if cell != types.CellType():  # one that is not empty
                yield f"{expression}.__closure__[{index}].cell_contents", cell.cell_contents, True
        for name, item in vars(value).items():
            yield f"{expression}.{name}", item, True
    elif isinstance(value, type):
        for name, item in vars(value).items():
            if not name.startswith("__") or name in METHODS:
                yield f"{expression}.{name}", item, True
    elif isinstance(value, torch.nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            for name, item in getattr(value, table).items():
                yield f"{expression}.{table}[{name!r}]", item, True
        for name in ("training", "flag", "gain", "p", "eps"):
            if name in vars(value):
                yield f"{expression}.{name}", getattr(value, name), True
    elif not isinstance(value, (torch.Tensor, str)):
        names = list(getattr(value, "__dict__", ())) + [
            name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)
        ]
        for name in names:
            own = getattr(value, "__dict__", {})
            yield f"{expression}.{name}", own[name] if name in own else getattr(value, name), True


def structural(expression, value, rng):
    """Statements that change ``value`` itself."""
    e = expression
    pick = rng.choice
    if isinstance(value, dict):
        new = pick(["'a'", "'q'", "'new'", "1", "True", "1.0", "None", "(1, 2)", "Text('a')"])
        yield f"{e}[{new}] = {pick(NUMBERS + TENSORS)}"
        if value:
            key = repr(pick([k for k in value if isinstance(k, (str, int, tuple))] or ["a"]))
            yield f"{e}.pop({key})"
            yield f"{e}[{key}] = {e}.pop({key})"
            yield f"{e}.clear()"
    if isinstance(value, (list, collections.deque)):
        yield f"{e}.append({pick(NUMBERS + TENSORS)})"
        yield f"{e}.reverse()"
        if value:
            yield f"{e}.pop()"
            yield f"{e}.insert(0, {e}[-1])"
    if isinstance(value, set):
        yield f"{e}.add({pick(['9', '1', 'True', '2.0', repr('z')])})"
        yield f"{e}.discard(2)"
    if isinstance(value, torch.nn.Module):
        yield from _from_table(MODULE_CHANGES, e, rng)
    elif isinstance(value, torch.Tensor):
        yield from _from_table(TENSOR_CHANGES, e, rng)
    elif isinstance(value, types.FunctionType):
        yield f"{e}.__code__ = {pick(['double', 'halve', '(lambda x: x * 6)'])}.__code__"
        yield f"{e}.__kwdefaults__ = {pick(['None', repr({'b': 9, 'c': (3,)})])}"
        yield f"{e}.gain = {pick(NUMBERS)}"
        yield f"{e}.{pick(['__name__', '__qualname__', '__doc__'])} = {pick(['repr(1)', 'str()'])}"
    elif isinstance(value, functools.partial):
        yield f"{e}.keywords[{pick([repr('c'), repr('a'), repr('b')])}] = {pick(NUMBERS)}"
        yield f"{e}.__setstate__((with_defaults, (), {{'b': {pick(NUMBERS)}}}, {{}}))"
    elif isinstance(value, type):
        name = pick(list(METHODS))
        yield f"{e}.{name} = {METHODS[name]}"
        yield f"{e}.{name} = {METHODS[name]}"
        yield f"{e}.{pick(['__name__', '__qualname__'])} = {pick(['repr(1)', repr('Box')])}"
        if value.__name__ in ("Box", "Other"):
            yield f"{e}.__bases__ = {pick(['(Other,)', '(Base,)', '(Sized, Base)'])}"
    elif hasattr(value, "__dict__"):
        name = pick(list(METHODS))
        yield f"{e}.{name} = {pick(NUMBERS + FUNCTIONS + TENSORS)}"
        yield f"{e}.__class__ = {pick(CLASSES)}"
        yield f"{e}.__dict__ = dict({e}.__dict__, {name}={pick(NUMBERS)})"


def _everything(scope):
    names = [n for n, v in scope.items() if not n.startswith("__") and not isinstance(v, types.ModuleType)]
    return [(name, scope[name], True) for name in names if name not in ("main", "args")]


def change(scope, places, rng):
    """One statement that changes something reachable from one of ``places`` in the world ``scope``."""
    for _ in range(20):
        try:
            statements = _statements(scope, places, rng)
        except Exception:  # an earlier change: a place is gone, or a class answers ``isinstance`` by an error
            continue
        if statements:
            return rng.choice(statements)
    return "pass"


def _statements(scope, places, rng):
    """What could be done at a random place; nothing where there is nothing to change."""
    root = rng.choice(places)
    if root == "globals":
        expression, value, assignable = rng.choice(_everything(scope))
    else:
        expression, value, assignable = root, eval(root, scope), root.isidentifier()
    if root in ("args", "globals"):
        assignable = root == "globals"
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        below = list(children(expression, value))
        if not below:
            break
        expression, value, assignable = rng.choice(below)
    statements = list(structural(expression, value, rng)) if expression != "args" else []
    if assignable:
        alternatives = values_like(value)
        statements += [f"{expression} = {rng.choice(alternatives)}" for _ in range(4)]
        statements += [f"del {expression}"]
        statements += [f"{expression} = {rng.choice(rng.choice([NUMBERS, OBJECTS, TENSORS, CONTAINERS]))}"]
    return statements
