"""Changes of functions, classes, other modules and torch's settings between calls; see ``scenarios``."""

FUNCTIONS = """
def defaults(x, a=1.5, *, b=2, c=(1, 2)):
    return x * a + b + c[0]
def make(bias, table):
    def inner(x):
        return x + bias + table["k"]
    return inner
closed = make(0.5, {"k": 1.0})
part = functools.partial(defaults, a=0.25)
class Color(enum.Enum):
    RED = 1.0
    BLUE = 3.0
class Thing:
    rate = 2.0
    _size = 4.0
    @property
    def size(self):
        return self._size
    @staticmethod
    def still(x):
        return x + 1
    @classmethod
    def named(cls, x):
        return x * cls.rate
thing, kind = Thing(), Color.RED
other = types.ModuleType("other")
exec("level = 2.0\\ndef helper(x):\\n    return x * level", vars(other))
borrowed = other.helper
def main():
    x = defaults(torch.ones(2)) + closed(torch.ones(2)) + part(torch.ones(2))
    x = x * kind.value + thing.size + thing.still(x) + thing.named(x)
    return x + borrowed(x) + other.helper(x), kind is Color.RED, kind.name
"""
FUNCTION_CHANGES = (
    "defaults.__defaults__ = (2.5,)",
    "defaults.__kwdefaults__ = {'b': 3, 'c': (5,)}",
    "defaults.__kwdefaults__['b'] = 4",
    "defaults.__kwdefaults__['c'] = [7]",
    "defaults.__code__ = (lambda x, a=1.5, *, b=2, c=(1, 2): x - a).__code__",
    "closed.__closure__[0].cell_contents = 9.0",
    "closed.__closure__[1].cell_contents['k'] = 2.0",
    "closed = make(0.25, {'k': 3.0})",
    "part = functools.partial(defaults, a=0.75)",
    "part.keywords['a'] = 0.125",
    "part.__setstate__((defaults, (), {'b': 7}, {}))",
    "part = functools.partial(closed)",
    "kind = Color.BLUE",
    "Color.BLUE._value_ = 6.0",
    "Color.BLUE.name",
    "Thing.rate = 3.0",
    "thing.rate = 8.0",
    "thing._size = 5.0",
    "Thing.size = property(lambda self: 11.0)",
    "Thing.size.fget.__code__ = (lambda self: 12.0).__code__",
    "Thing.still = staticmethod(lambda x: x - 1)",
    "Thing.named = classmethod(lambda cls, x: x / 2)",
    "thing.still = lambda x: x * 5",
    "thing.__class__ = type('Sub', (Thing,), {'rate': 0.5})",
    "other.level = 3.0",
    "other.helper.__code__ = (lambda x: x + 2).__code__",
    "other.helper = lambda x: x * 7",
    "del other.level",
    "borrowed = torch.neg",
    "del Thing.rate",
)
SETTINGS = """
A, B = torch.ones(4), torch.arange(4.0)
V = B[1:]
z = torch.ones(2, dtype=torch.complex64)
w = torch.ones(3, requires_grad=True)
def main():
    made = torch.ones(2), torch.tensor(1.5), torch.arange(3) / 2
    y = A @ B + w.sum() * 2
    A.add_(1)
    B.mul_(2)
    facts = torch.is_grad_enabled(), w.grad is None, z.is_conj(), V.stride(), A.dtype, torch.get_default_dtype()
    return made, y, y.requires_grad, V + 1, z * 2, facts, torch.is_autocast_enabled("cpu"), A.is_contiguous()
"""
SETTING_CHANGES = (
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
    "torch.set_grad_enabled(False)",
    "torch.set_grad_enabled(True)",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(False)",
    "torch.set_float32_matmul_precision('medium')",
    "torch.set_float32_matmul_precision('highest')",
    "torch.set_autocast_enabled('cpu', True)",
    "torch.set_autocast_dtype('cpu', torch.float16)",
    "torch.set_autocast_enabled('cpu', False); torch.set_autocast_dtype('cpu', torch.bfloat16)",
    "torch.set_autocast_cache_enabled(False)",
    "torch.set_autocast_cache_enabled(True)",
    "torch.set_flush_denormal(False)",
    "torch.set_default_device('meta'); torch.set_default_device(None)",
    "z = z.conj()",
    "z = torch.view_as_real(z.resolve_conj()).sum(1)",
    "z = torch.ones(2, dtype=torch.complex64).conj().imag",
    "z = torch.ones(2, dtype=torch.complex64)",
    "V = B",
    "V = B[::2]",
    "V = torch.ones(3)",
    "A = B",
    "A = torch.arange(4.0)",
    "B = A[:]",
    "B = torch.ones(8)[::2]",
    "w.grad = torch.ones(3)",
    "w.grad = None",
    "w.requires_grad_(False)",
    "w = nn.Parameter(torch.ones(3))",
    "w = w.detach()",
    "w.__class__ = nn.Parameter",
    "A = torch.ones(4, dtype=torch.float64); B = B.double()",
    "A = torch.ones(4); B = torch.arange(4.0)",
)

SCENARIOS = [("functions", FUNCTIONS, FUNCTION_CHANGES), ("settings", SETTINGS, SETTING_CHANGES)]
