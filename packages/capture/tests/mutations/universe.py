"""The world that programs of the mutation fuzzer read: source text, run once for each of two equal copies.

``SNIPPETS`` are statements of a random ``main``; each names the places that it reads, as expressions in
the world's namespace, so that mutations aim at what matters.
"""

import linecache
import random

WORLD = """
import collections, dataclasses, enum, functools, math, types
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)

class Color(enum.Enum):
    RED = 1.0
    BLUE = 3.0

class Text(str):
    pass

class Meta(type):
    factor = 1.25
    @property
    def gain(cls):
        return cls.factor * 2

class Base:
    rate = 2.0
    tag = "base"
    limits = (1, 2)
    table = {"a": 1.5}
    def scale(self, x):
        return x * self.rate
    def twice(self, x):
        return self.scale(self.scale(x))
    @property
    def shift(self):
        return self.rate + 1
    @staticmethod
    def fixed(x):
        return x + 0.5
    @classmethod
    def named(cls, x):
        return x + len(cls.tag)

class Box(Base):
    def __init__(self, value=3.0, child=None):
        self.value = value
        self.flag = True
        self.name = "box"
        self.child = child
        self.items = [1, 2.5, 4]
        self.weight = torch.arange(4.0)
        self.fn = halve
        self.kind = Color.RED
    def scale(self, x):
        return super().scale(x) + self.value

class Other(Base):
    rate = 5.0
    def __init__(self):
        self.value = 7.0
        self.flag = False
        self.name = "other"
        self.child = None
        self.items = (3, 1)
        self.weight = torch.ones(4)
        self.fn = double
        self.kind = Color.BLUE

class Slotted:
    __slots__ = ("a", "b", "c")
    def __init__(self):
        self.a, self.b = 1.5, [2.0]

class Sized:
    size = 2
    def __len__(self):
        return self.size
    def __call__(self, x):
        return x - self.size
    def __getitem__(self, key):
        return self.size * key
    def __contains__(self, key):
        return key == self.size
    def __eq__(self, other):
        return isinstance(other, Sized) and other.size == self.size
    def __hash__(self):
        return 1
    def __bool__(self):
        return self.size > 1
    def __iter__(self):
        return iter(range(self.size))
    def __add__(self, other):
        return other + self.size
    def __enter__(self):
        return self.size
    def __exit__(self, *_):
        return False

class Dynamic:
    def __getattr__(self, name):
        return len(name)

class WithMeta(metaclass=Meta):
    pass

class Descriptor:
    def __init__(self, gain):
        self.gain = gain
    def __get__(self, instance, owner):
        return self.gain

class Described:
    field = Descriptor(1.75)

@dataclasses.dataclass
class Config:
    width: int = 4
    ratio: float = 0.5
    names: list = dataclasses.field(default_factory=lambda: ["p", "q"])
    extra: dict = dataclasses.field(default_factory=dict)

Point = collections.namedtuple("Point", "x y")

def halve(x):
    return x / 2

def double(x):
    return x * 2

def with_defaults(x, a=1.5, *, b=2, c=(1, 2)):
    return x * a + b + c[0]

def make(bias, deep):
    count = 2
    def inner(x):
        return x + bias * count + deep["k"]
    return inner

closed = make(0.5, {"k": 1.0})
halves = functools.partial(with_defaults, a=0.25)

def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(x):
        return fn(x) + wrapper.gain
    wrapper.gain = 0.125
    return wrapper

decorated = wrapped(halve)

class Block(nn.Module):
    def __init__(self, flag=True):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.full((4,), 0.5))
        self.flag = flag
        self.drop = nn.Dropout(0.0)
        self.gain = 1.5
    def forward(self, x):
        y = self.linear(x) if x.dtype == torch.float32 else x
        if self.flag:
            y = y + self.mean
        if self.training:
            y = y * self.gain
        return self.drop(y)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(False)])
        self.norm = nn.LayerNorm(4)
        self.act = nn.ReLU()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.by_name = nn.ModuleDict({"one": Block()})
        self.tied = self.blocks[0].linear
    def forward(self, x):
        for block in self.blocks:
            x = self.act(block(x))
        return x * self.scales[0]

box = Box(child=Box(1.0))
twin = box
other = Other()
slotted = Slotted()
sized = Sized()
sized2 = Sized()
dynamic = Dynamic()
described = Described()
config = Config()
point = Point(1.5, [2.0])
net = Net()
block = Block()
NUMBER = 3
FLOAT = 1.5
FLAG = True
NOTHING = None
NAME = "global"
LIST = [1, 2.0, torch.ones(4), "s"]
DICT = {"a": 1.0, "b": torch.ones(4), 3: "three", (1, 2): 2.5}
NESTED = {"l": [1, [2, 3]], "d": {"e": 4.0}}
SET = {1, 2, 5}
FROZEN = frozenset({"a", "b"})
DEQUE = collections.deque([1.0, 2.0], maxlen=4)
ORDERED = collections.OrderedDict(a=1.0, b=2.0)
DEFAULT = collections.defaultdict(int, {"a": 2})
COUNTER = collections.Counter("aab")
RANGE = range(3)
SLICE = slice(0, 2)
TENSOR = torch.arange(4.0)
VIEW = TENSOR[1:]
ALIAS = TENSOR
PARAM = nn.Parameter(torch.ones(4))
DTYPE = torch.float32
SCALAR = np.float32(2.5)
SPACE = types.SimpleNamespace(a=1.0, b=[1])
OBJECTS = [box, other, box]
METHOD = box.scale
args = [torch.linspace(-1, 1, 4), torch.linspace(0, 2, 8).view(2, 4), 2, 0.5]
"""

# (statement, places it reads)
SNIPPETS = [
    ("x = x * box.value", "box"),
    ("x = box.scale(x)", "box Box Base"),
    ("x = box.twice(x)", "box Box Base"),
    ("x = x + box.shift", "box Base"),
    ("x = Box.named(Box.fixed(x))", "Box Base"),
    ("x = x + (box.child.value if box.child is not None else -1)", "box box.child"),
    ("x = x + box.weight", "box"),
    ("x = box.fn(x)", "box box.fn"),
    ("x = x * (2 if box.flag else 3)", "box"),
    ("x = x + len(box.name)", "box"),
    ("x = x * box.kind.value", "box Color"),
    ("x = x + sum(i for i in box.items)", "box box.items"),
    ("x = x + (box.missing if hasattr(box, 'missing') else 0)", "box Box Base"),
    ("x = x + getattr(other, 'extra', 0.25)", "other Other"),
    ("x = x + (10 if box is twin else 20)", "globals box"),
    ("x = x + (1 if type(box) is Box else 2) + isinstance(other, Base)", "box other Box Other"),
    ("x = x + Base.rate + Box.limits[0] + Base.table['a']", "Base Box Base.table"),
    ("x = x + slotted.a", "slotted"),
    ("x = x + (slotted.c if hasattr(slotted, 'c') else 0.5)", "slotted"),
    ("x = x + len(sized) + (2 in sized)", "sized Sized"),
    ("x = sized(x) + sized[2]", "sized Sized"),
    ("x = x + (1 if sized == sized2 else 2)", "sized sized2 Sized"),
    ("x = x + (3 if sized else 4)", "sized Sized"),
    ("x = x + sum(sized) + (sized + 1)", "sized Sized"),
    ("with sized as n: x = x + n", "sized Sized"),
    ("x = x + dynamic.abc", "dynamic Dynamic"),
    ("x = x + WithMeta.gain", "WithMeta Meta"),
    ("x = x + described.field", "described Described Descriptor Described.__dict__['field']"),
    ("x = x * config.ratio + config.width + len(config.names)", "config config.names Config"),
    ("x = x + len(config.extra) + (config == Config())", "config config.extra Config"),
    ("x = x + point.x + point[1][0]", "globals point point.y"),
    ("x = with_defaults(x)", "with_defaults globals"),
    ("x = halves(x) + with_defaults(x, b=3)", "halves with_defaults"),
    ("x = closed(x)", "closed closed.__closure__[2].cell_contents"),
    ("x = decorated(x)", "decorated halve"),
    ("x = METHOD(x)", "globals METHOD box Box"),
    ("x = x + NUMBER * FLOAT", "globals"),
    ("x = x + 1 if FLAG else x - 1", "globals"),
    ("x = x + (NOTHING is None)", "globals"),
    ("x = x + len(NAME) + (NAME == 'global')", "globals"),
    ("x = x + LIST[0] + LIST[1] + LIST[2]", "LIST globals"),
    ("x = x + len(LIST) + (2.0 in LIST[:2])", "LIST"),
    ("x = x + sum(v for v in LIST if type(v) is float)", "LIST"),
    ("x = x + DICT['a'] + DICT['b']", "DICT globals"),
    ("x = x + DICT.get('zz', 0.5) + ('q' in DICT)", "DICT"),
    ("x = x + len(DICT) + (3 in DICT)", "DICT"),
    ("for k, v in DICT.items():\n        x = x * 0.5 + (v if isinstance(v, float) else len(str(k)))", "DICT"),
    ("x = x + NESTED['l'][1][0] + NESTED['d']['e']", "NESTED NESTED['l'] NESTED['d']"),
    ("x = x + sum(sorted(SET)) + (2 in SET)", "SET"),
    ("x = x + len(FROZEN) + ('a' in FROZEN)", "globals"),
    ("x = x + DEQUE[0] + len(DEQUE) + (DEQUE.maxlen or 0)", "DEQUE globals"),
    ("x = x + next(iter(ORDERED.values())) + len(ORDERED)", "ORDERED"),
    ("x = x + DEFAULT['a'] + DEFAULT.get('u', 3)", "DEFAULT"),
    ("x = x + COUNTER['a'] + COUNTER['zz']", "COUNTER"),
    ("x = x + sum(RANGE)", "globals"),
    ("x = x + x[SLICE].sum()", "globals"),
    ("x = x + TENSOR", "TENSOR globals"),
    ("x = x + VIEW.sum() + VIEW.stride(0)", "VIEW globals"),
    ("x = x + (TENSOR is ALIAS)", "globals"),
    ("x = x * PARAM", "PARAM globals"),
    ("x = x.to(DTYPE)", "globals"),
    ("x = x * float(SCALAR) + SCALAR.itemsize", "globals"),
    ("x = x + len(type(box).__name__) + len(halve.__name__)", "box Box halve"),
    ("x = x + issubclass(Other, Sized) + isinstance(other, Box)", "Other other Base"),
    ("x = x + (2 if isinstance(box, (Other, Sized)) else 3)", "box Box Base"),
    ("x = x + Config().ratio + len(Config(3).names)", "Config"),
    ("x = x + SPACE.a + len(SPACE.b)", "SPACE SPACE.b"),
    ("for o in OBJECTS: x = x + o.value", "OBJECTS box other"),
    ("x = x + (OBJECTS[0] is OBJECTS[2])", "OBJECTS"),
    ("x = net(x)", "net net.blocks net.blocks[0] net.blocks[0].linear net.act Net Block"),
    ("x = net(x)", "net.scales net.norm net.blocks[1].drop net.blocks[1]"),
    ("x = block(x)", "block block.linear Block block.drop"),
    ("x = net.norm(x) + net.tied.bias", "net net.norm net.tied"),
    ("x = net.by_name['one'](x)", "net.by_name net.by_name['one']"),
    ("for p in block.parameters(): x = x + p.sum()", "block block.linear"),
    ("for n, b in block.named_buffers(): x = x + b + len(n)", "block"),
    ("x = x + len(list(net.children())) + len(net.blocks)", "net net.blocks"),
    ("x = F.linear(x, block.linear.weight)", "block.linear"),
    ("x = x + y.sum(0)", "args"),
    ("x = x + y.stride(0) + y.storage_offset() + y.dim()", "args"),
    ("x = x + y.is_contiguous() + (y.dtype == torch.float32)", "args"),
    ("x = x * n + f", "args"),
    ("x = x + (1 if n > 1 else 2)", "args"),
    ("x = x + x.requires_grad + y.is_leaf", "args"),
    ("x = x + torch.is_grad_enabled() + torch.ones(4)", "args"),
    ("x = x + torch.tensor(1.5) @ torch.ones(()) if x.dim() == 0 else x", "args"),
    ("x = F.dropout(x, 0.0) + torch.arange(4)", "args"),
    ("x = x + (y is x) + (y.data_ptr() != 0)", "args"),
    ("x = (x.view(1, -1) @ torch.eye(4)).view(-1) if x.numel() == 4 else x", "args"),
    ("x = x + math.sqrt(abs(f)) + abs(n)", "args"),
    # writes
    ("box.value = box.value + 1", "box"),
    ("LIST.append(n)", "LIST args"),
    ("DICT['new'] = f", "DICT args"),
    ("TENSOR.add_(1)", "TENSOR globals"),
    ("x.mul_(2)", "args globals"),
    ("block.mean.add_(0.5)", "block"),
    ("slotted.c = n", "slotted args"),
    ("box.items = list(box.items) + [n]", "box box.items"),
    ("Base.rate = Base.rate + 0.5", "Base Box"),
    ("other.child = box", "other"),
    ("NESTED['d']['e'] += 1", "NESTED['d']"),
    ("global NUMBER\n    NUMBER += 1", "globals"),
    ("closed.__closure__[0].cell_contents", "closed"),
    ("DEQUE.append(f)", "DEQUE args"),
    ("COUNTER['a'] += 1", "COUNTER"),
    ("ORDERED.move_to_end('a')", "ORDERED"),
    ("SET.add(n)", "SET args"),
]


LIBRARY_SNIPPETS = [
    ("x = F.relu(x) + torch.relu(x)", "args"),
    ("x = F.softmax(x.float(), -1) + F.gelu(x.float())", "args"),
    ("x = F.leaky_relu(x.float()) - F.mse_loss(x.float(), torch.zeros(4))", "args"),
    ("x = torch.special.expit(x) + torch.sigmoid(x)", "args"),
    ("x = torch.where(x > 0, x, -x)", "args"),
    ("x = x.add(1).mul(0.5).sub(n)", "args"),
    ("x = torch.einsum('i,i->i', x, x) if x.dim() == 1 else x", "args"),
    ("x = x + math.sin(f) + math.pi + math.floor(2.5)", "args"),
    ("x = functools.reduce(lambda a, b: a + b, [x, x, 1.0])", "args"),
    ("x = x * collections.Counter('aab')['a'] + len(collections.OrderedDict(a=1))", "args"),
    ("x = nn.Sequential(nn.ReLU(), nn.Identity())(x)", "args"),
    ("x = nn.init.ones_(x.clone()) + x", "args"),
    ("x = x + dataclasses.replace(config, ratio=2.0).ratio", "config"),
    ("x = x + sum(p.numel() for p in block.parameters())", "block"),
    ("with torch.no_grad(): x = x + 1", "args"),
    ("x = x.float().norm() + x.float().split(2)[0].sum()", "args"),
    ("x = x + np.float64(1.5) * float(np.sqrt(4.0))", "args"),
]
"""Statements that read what a library defines."""


class Program:
    """A random ``main(x, y, n, f)`` over the world. ``places`` are the expressions that it reads."""

    def __init__(self, seed, size=7, more=()):
        rng = random.Random(seed)
        chosen = rng.sample(SNIPPETS, rng.randint(2, size))
        chosen += rng.sample(more, min(3, len(more)))
        # Declarations of globals come before any use of the name.
        chosen.sort(key=lambda snippet: not snippet[0].startswith("global"))
        lines = [text for text, _ in chosen]
        self.places = sorted({place for _, places in chosen for place in places.split()})
        body = "\n    ".join([*lines, "return x, n"])
        self.source = f"{WORLD}\ndef main(x, y, n, f):\n    {body}\n"
        self.main = f"def main(x, y, n, f):\n    {body}"

    def objects(self, name):
        """A fresh copy of the world."""
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope = {"__name__": "mutated_world"}
        exec(compile(self.source, name, "exec"), scope)
        return scope
