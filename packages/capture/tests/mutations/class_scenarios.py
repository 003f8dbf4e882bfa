"""Changes of what classes and functions are called, derive from and hold, and of modules that are imported; see ``scenarios``."""

NAMES = """
class A:
    "doc"
class B(A):
    def show(self):
        return f"{type(self).__name__} {self.__class__.__qualname__}"
class Z:
    pass
def g(x):
    return x
b = B()
def main():
    texts = b.show(), B.__doc__, A.__doc__, B.__module__, g.__name__, g.__qualname__, g.__doc__, g.__module__
    return torch.ones(2), texts, g.__code__.co_name, g.__defaults__, g.__kwdefaults__
"""
NAME_CHANGES = (
    "B.__name__ = 'Other'",
    "B.__qualname__ = 'q.Other'",
    "A.__doc__ = 'new'",
    "B.__doc__ = 'its own'",
    "B.__module__ = 'elsewhere'",
    "g.__name__ = 'h'",
    "g.__qualname__ = 'q.h'",
    "g.__doc__ = 'text'",
    "g.__module__ = 'elsewhere'",
    "g.__code__ = (lambda x: x * 2).__code__",
    "g.__defaults__ = (1,)",
    "g.__kwdefaults__ = {'a': 1}",
)
BASES = """
class P:
    u = 1
class Q:
    v = 2
class R(P):
    __match_args__ = ("k",)
    k = 1
class S(R):
    pass
s = S()
def main():
    match s:
        case R(1):
            way = 1
        case R(v=2):
            way = 2
        case Q():
            way = 3
        case _:
            way = 4
    return torch.ones(2) * way, isinstance(s, Q), issubclass(S, P), isinstance(s, (Q, int)), S.__mro__[2] is R.__base__
"""
BASE_CHANGES = (
    "R.__bases__ = (Q,)",
    "R.__bases__ = (Q, P)",
    "R.__bases__ = (P, Q)",
    "R.__match_args__ = ('v',)",
    "s.k = 5",
    "S.__bases__ = (Q,)",
    "S.__bases__ = (P,)",
)
IMPORTS = """
import sys
def load(name, **values):
    module = types.ModuleType(name)
    vars(module).update(values)
    exec("def h(x):\\n    return g(x) * K", vars(module))
    sys.modules[name] = module
def fresh():
    load("scenario_module", g=lambda x: x + 1, K=2.0)
    load("scenario_module.below", g=lambda x: x - 1, K=3.0)
    sys.modules["scenario_module"].__path__ = []
    sys.modules["scenario_module"].below = sys.modules["scenario_module.below"]
fresh()
def main():
    import scenario_module
    import scenario_module.below as below
    from scenario_module import K
    return scenario_module.h(torch.ones(2)) + below.h(torch.ones(2)), K
"""
IMPORT_CHANGES = (
    "fresh(); sys.modules['scenario_module'].g = lambda x: x - 1",
    "fresh(); sys.modules['scenario_module'].K = 5.0",
    "fresh(); sys.modules['scenario_module'].h = lambda x: x * 100",
    "fresh(); load('scenario_module.below', g=lambda x: x, K=9.0)",
    "fresh(); load('scenario_module', g=lambda x: x, K=4.0, __path__=[], below=sys.modules['scenario_module.below'])",
    "fresh()",
)
HELD = """
import dataclasses
@dataclasses.dataclass
class D:
    a: float = 2.0
    b: list = dataclasses.field(default_factory=lambda: [1.0, 2.0])
class E(enum.Enum):
    A = 2.0
    B = 3.0
def g(x, k=1.0, *, z=2.0):
    return x * k + z
class Swapped:
    def __init__(self):
        self.a, self.b = 2.0, 3.0
p, o, n, i = functools.partial(g, k=3.0), Swapped(), np.float32(2), np.int64(4)
def main():
    d = D()
    x = p(torch.ones(2)) * o.a + o.b + d.a + sum(d.b) + E.A.value
    return x * n + float(i), D(4.0) == D(4.0), repr(d), [e.value for e in E]
"""
HELD_CHANGES = (
    "D.__init__.__defaults__ = (7.0, *D.__init__.__defaults__[1:])",
    "D.__eq__ = lambda self, other: False",
    "D.__post_init__ = lambda self: setattr(self, 'a', 0.0)",
    "D.__init__ = lambda self, *_: setattr(self, 'a', 6.0) or setattr(self, 'b', [])",
    "E.A._value_ = 5.0",
    "E.B._value_ = 6.0",
    "p.keywords['k'] = 5.0",
    "p.keywords['z'] = 7.0",
    "p.__setstate__((g, (), {'k': 0.5}, {}))",
    "g.__kwdefaults__['z'] = 11.0",
    "p = functools.partial(g, z=8.0)",
    "o.__dict__ = {'a': 5.0, 'b': 1.0}",
    "o.__dict__['a'] = 7.0",
    "vars(o).update(b=8.0)",
    "o.__class__ = type('P', (Swapped,), {'a': property(lambda self: 9.0)})",
    "n = np.float32(3)",
    "n = np.float64(3)",
    "i = np.int32(4)",
    "i = np.int64(5)",
)
SLOTS = """
def made(*names):
    s = type("S", (), {"__slots__": names})()
    s.a, s.b = 5.0, 1.0
    return s
class P(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float * 2)]
replaced, gone, undeclared, p = made("a", "b"), made("a", "b"), made("a", "b"), P(5)
type(replaced).b = 3.0
del type(gone).b
del type(undeclared).__slots__
def main():
    x = torch.ones(2)
    return x + replaced.a + replaced.b, x * gone.a, x * undeclared.a, x + p.a + p.b[0]
"""
SLOT_CHANGES = (
    "replaced.a = 7.0",
    "gone.a = 8.0",
    "undeclared.a = 9.0",
    "p.a = 7",
    "p.b[0] = 2.5",
    "type(replaced).b = 4.0",
    "del replaced.a",
    "replaced.a = 1.0",
    "del undeclared.a",
    "undeclared.a = 2.0",
    "type(undeclared).a = 11.0",
    "del gone.a",
)
SCENARIOS = [
    ("names", NAMES, NAME_CHANGES),
    ("bases", BASES, BASE_CHANGES),
    ("imports", IMPORTS, IMPORT_CHANGES),
    ("held", HELD, HELD_CHANGES),
    ("slots", SLOTS, SLOT_CHANGES),
]
