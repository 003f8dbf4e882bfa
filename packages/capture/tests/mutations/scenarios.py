"""Small worlds of one kind of state each, and the changes that a program makes to it between calls.

Each is (name, source that defines ``main()``, statements). The random programs of ``universe.py`` do not hold these.
"""

ARRAYS = """
A, B = np.arange(4.0), np.arange(4.0)
T = torch.from_numpy(A)
def main():
    T.add_(1)
    B[:] = B + 1
    return A * 2, B + 1, T + A.sum(), A is B, A.strides
"""
ARRAY_CHANGES = (
    "B = A",
    "B = A[1:]",
    "B = A[::-1]",
    "B = np.arange(4.0)",
    "A = A.astype(np.float32)",
    "A = np.arange(6.0).reshape(2, 3)",
    "A = np.asfortranarray(A)",
    "A = T.numpy()",
    "T = T[1:]",
    "A = np.array(2.0)",
    "A = np.float64(3.0)",
    "B.flags.writeable = False",
)
TRANSFORMS = """
K, AXES = 2.0, (0, None)
m = nn.Linear(3, 3)
def inner(x, y):
    return (m(x) * K * y).sum()
def main():
    one = torch.func.grad(inner)(torch.ones(3), torch.arange(3.0))
    return one, torch.vmap(inner, in_dims=AXES)(torch.ones(3, 3), torch.arange(3.0))
"""
TRANSFORM_CHANGES = (
    "K = 3.0",
    "AXES = (1, None)",
    "m.bias.data = torch.ones(3)",
    "m = nn.Linear(3, 3, bias=False)",
    "m.forward = lambda x: x * 4",
    "m.register_forward_hook(lambda m, a, o: o * 2)",
    "inner.__code__ = (lambda x, y: (x * x * y).sum()).__code__",
    "inner = lambda x, y: (x - y).pow(2).sum()",
)
BRANCHES = """
P, D = torch.tensor(True), {"k": 2.0}
def make(table):
    def branch(x):
        return x * table["k"]
    return branch
yes, no = make(D), make({"k": 9.0})
def main():
    return torch.cond(P, yes, no, (torch.ones(2),))
"""
BRANCH_CHANGES = (
    "P = torch.tensor(False)",
    "yes, no = no, yes",
    "D['k'] = 5.0",
    "no.__closure__[0].cell_contents = {'k': 8.0}",
    "P = True",
    "yes = make({'k': 7.0})",
    "yes.__code__ = no.__code__",
)
LOGS = """
OUT = []
class Handler(logging.Handler):
    def emit(self, record):
        OUT.append((record.levelname, record.getMessage()))
log = logging.Manager(logging.RootLogger(logging.WARNING)).getLogger("x")
log.addHandler(Handler())
F = None
def main():
    x = torch.ones(2)
    log.info("info %s", 1)
    log.warning("warning %s", 2)
    print("printed", file=F)
    return x + log.isEnabledFor(logging.INFO), tuple(OUT)
"""
LOG_CHANGES = (
    "log.setLevel(logging.INFO)",
    "log.addHandler(Handler())",
    "log.disabled = True",
    "log.disabled = False",
    "log.addFilter(lambda record: record.levelname != 'INFO')",
    "log.handlers[0].setLevel(logging.ERROR)",
    "log.info = lambda *a: OUT.append(a)",
    "F = io.StringIO()",
    "print = lambda *a, **k: OUT.append(a)",
    "log.handlers.clear()",
)
KEYED = """
class Key: pass
L = [Key(), Key()]
T = {id(o): i + 1.0 for i, o in enumerate(L)}
W = weakref.WeakKeyDictionary({L[0]: 2.0})
R = weakref.ref(L[0])
V = contextvars.ContextVar("v", default=1.0)
def main():
    return torch.ones(2) * T.get(id(L[0]), 0.5), W.get(L[0], 0.25), len(W), R() is None, V.get()
"""
KEYED_CHANGES = (
    "L.reverse()",
    "W[L[0]] = 3.0",
    "V.set(2.0)",
    "T[id(L[0])] = 8.0",
    "L[1] = None; gc.collect()",
    "L[0].__class__ = type('Sub', (Key,), {})",
    "V.set([1])",
    "T.clear()",
    "W.clear()",
    "V = contextvars.ContextVar('u', default=5.0)",
    "L[0] = Key()",
)
DATA = """
p, N = nn.Parameter(torch.ones(3)), torch.zeros(3)
q = p.detach()
def main():
    p.data = p.data * 2
    y = p * 3
    p.data = N
    return y, p, q, p.data_ptr() == N.data_ptr()
"""
DATA_CHANGES = (
    "N = torch.ones(3).double()",
    "N = torch.ones(2, 2)",
    "N = q",
    "N = p.data",
    "N = torch.ones(4)[1:]",
    "p.requires_grad_(False)",
    "N = p",
    "p = torch.ones(3)",
)
MODULES = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("mean", torch.ones(3))
    def forward(self, x):
        return self.norm(torch.relu(self.linear(x))) + self.mean
class Sub(Block):
    def forward(self, x):
        return x - 1
m = nn.Sequential(Block(), nn.Tanh(), Block())
def main():
    return m(torch.arange(6.0).view(2, 3))
"""
MODULE_CHANGES = (
    "hook = m[0].register_forward_pre_hook(lambda m, a, k: ((a[0] * 2,), k), with_kwargs=True)",
    "hook.remove()",
    "m[1].register_forward_hook(lambda m, a, o: o * 9, prepend=True)",
    "m[0].forward = lambda x: x * 3",
    "del m[0].forward",
    "m[2].__class__ = Sub",
    "Sub.__call__ = lambda self, x: x + 33",
    "del Sub.__call__",
    "Block.forward = lambda self, x: self.linear(x) + self.mean",
    "m[0].mean = torch.ones(1)",
    "m[0].linear.bias = None",
    "m[0].linear._parameters['weight'] = nn.Parameter(torch.zeros(3, 3))",
    "m[0].__dict__['linear'] = lambda x: x * 99",
    "del m[0].__dict__['linear']",
    "del m[0].mean; Block.mean = 6.0",
    "m[0].training = False",
    "m[0].norm.momentum = None",
    "m[1]._call_impl = lambda x: x * 3",
    "m[0], m[1] = m[1], m[0]",
    "del m[1]",
)
WORDS = """
N, S = 3, "sum"
def main():
    return torch.ones(3) * N, N, N > 2, getattr(torch.ones(2, 3), S)(), {"sum": 1}.get(S, 0)
"""
WORD_CHANGES = (
    *(f"N = {n}" for n in ("4", "5", "True", "1", "0", "-1", "3.0", "2**63", "-2**63", "2**64")),
    *(f"N = {n}" for n in ("float('nan')", "-0.0", "0.0", "np.int64(3)", "np.float64(3)")),
    "N = type('Whole', (int,), {'__mul__': lambda self, o: 7})(3)",
    "S = 'mean'",
    "S = type('Text', (str,), {'__eq__': lambda self, o: True, '__hash__': lambda self: 0})('sum')",
    "S = ''",
)

CLASSES = """
class Meta(type):
    factor = 1.25
    @property
    def gain(cls):
        return cls.factor * 2
class Kind(metaclass=Meta):
    size = 2.0
class Lower(Kind): pass
class Sized:
    size = 2
    def __len__(self):
        return self.size
sized, L = Sized(), [torch.ones(2), 2.5]
space = types.ModuleType("space")
space.level = 3.0
def main():
    own = object.__getattribute__
    with torch._C.DisableTorchFunction():
        total = sum(L)
    found = own(Lower, "gain") + own(Kind, "size") + hasattr(Lower, "size") + own(space, "level")
    return total * found * (3 if sized else 4)
"""
CLASS_CHANGES = (
    "Kind.size = 3.0",
    "Meta.factor = 2.0",
    "Lower.factor = 5.0",
    "space.level = 4.0",
    "L[0] = torch.ones(2, requires_grad=True)",
    "Sized.size = 0",
    "Sized.size = -1",
    "Sized.size = 2**70",
    "Sized.__bool__ = lambda self: True",
    "Meta.gain = 1.0",
    "Lower.gain = 8.0",
    "del Meta.gain",
    "Meta.__getattribute__ = lambda cls, n: 7.0",
    "del Kind.size",
    "del space.level",
)

SCENARIOS = [
    ("arrays", ARRAYS, ARRAY_CHANGES),
    ("transforms", TRANSFORMS, TRANSFORM_CHANGES),
    ("branches", BRANCHES, BRANCH_CHANGES),
    ("logs", LOGS, LOG_CHANGES),
    ("keyed", KEYED, KEYED_CHANGES),
    ("data", DATA, DATA_CHANGES),
    ("modules", MODULES, MODULE_CHANGES),
    ("words", WORDS, WORD_CHANGES),
    ("classes", CLASSES, CLASS_CHANGES),
]
