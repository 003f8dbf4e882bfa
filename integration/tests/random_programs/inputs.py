"""What a random program is called with: tensors of drawn shapes, dtypes and layouts, numbers, and state that lasts over calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

SIZES = (
    (5, 5, 5),
    (3, 3, 3),
    (4, 4, 4),
    (2, 2, 2),
    (1, 1, 1),
    (4, 4, 6),
    (5, 7, 7),
    (3, 5, 4),
    (2, 3, 1),
    (1, 2, 3),
    (3, 1, 0),
    (4, 0, 2),
    (16, 16, 17),
    (0, 3, 3),
)
"""The size N of each call."""
WIDTHS = (1, 2, 3, 4, 6, 7, 8, 9, 16, 17, 24, 33)
FORMS = (
    ("N", "C"),
    ("N", "C"),
    ("N", "C"),
    ("C",),
    ("N",),
    ("N", 1),
    (1, "C"),
    ("B", "N", "C"),
    ("B", 1, "C"),
)
FORMS += ((), ("B", "C", "H", "N"), ("B", "C", "N"), ("C", "C"), ("N", "N"))
FLOATS = ("float32",) * 6 + ("float64", "bfloat16", "float16")
OTHERS = ("int64", "int64", "int32", "uint8", "bool", "int8", "int16", "complex64")
LAYOUTS = ("plain",) * 6 + ("turned", "stepped", "offset", "expanded")


class Inputs:
    """Everything about a program but its body."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.calls = r.choice([2, 2, 3])
        self.is_large = r.random() < 0.08
        self.largest = 90000 if self.is_large else 5000
        self.sizes = r.choice(SIZES) if not self.is_large else r.choice([(70, 70, 70), (64, 64, 90)])
        self.width = r.choice(WIDTHS) if not self.is_large else r.choice([256, 257, 300])
        self.batch = r.choice([1, 2, 3])
        self.grad = r.random() < 0.5
        self.is_module = r.random() < 0.4
        self.dtype = r.choice(FLOATS)
        self.tensors = [self._tensor(k) for k in range(3)]
        self.numbers = r.choice([(2, 2, 2), (2, 3, 3), (1, 4, 2), (0, 1, 2)])
        self.floats = r.choice([(0.5, 0.5, 0.5), (0.5, 1.5, -0.75)])
        if r.random() < 0.45:
            # The same code serves all calls.
            self.sizes, self.numbers = self.sizes[:1] * 3, self.numbers[1:2] * 3
            self.floats = self.floats[:1] * 3
        self.training = r.random() < 0.6
        self.noise = r.randrange(1000)
        self.box_form, self.box_dtype = r.choice([("C",), ("N", "C"), (3,)]), self.dtype
        self.options = self._options()

    def _tensor(self, k: int) -> tuple[tuple[object, ...], str, str, bool]:
        r = self.r
        dtype = self.dtype if k == 0 or r.random() < 0.5 else r.choice(FLOATS + OTHERS)
        form = r.choice(FORMS) if k else r.choice(FORMS[:9])
        if self.is_large:
            form = r.choice(FORMS[:7])
        if len(form) == 4 and r.random() < 0.4:
            layout = "channels_last"
        else:
            layout = r.choice(LAYOUTS) if form else "plain"
        grad = self.grad and dtype in FLOATS and r.random() < 0.7
        return form, dtype, layout, grad

    def _options(self) -> dict[str, object]:
        r = self.r
        options: dict[str, object] = {"optimization": r.choice((3, 1, 1, 1, 0))}
        if r.random() < 0.45:
            options["grain"] = r.choice([1, 1, 8, 64])
        if r.random() < 0.05:
            options["host"] = "python"
        if r.random() < 0.15:
            options["capture_scalar_outputs"] = True
        if r.random() < 0.05:
            options["eager_rounding"] = True
        return options

    @property
    def dynamic(self) -> bool | None:
        return {0: True, 1: False}.get(self.noise % 12)

    def head(self) -> tuple[list[str], int]:
        """The lines in front of the body, and its level."""
        if not self.is_module:
            return ["def f(x, y, z, i, m, n, s, items, table, box):"], 1
        made = [
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            f"        self.lin = nn.Linear({self.width}, {self.width}, dtype=torch.{self.dtype})",
            f"        self.layer = nn.LayerNorm({self.width}, dtype=torch.{self.dtype})",
            f"        self.bn = nn.BatchNorm1d({self.width}, dtype=torch.{self.dtype})",
            "        self.emb = nn.Embedding(5, 3)",
            "        self.drop = nn.Dropout(0.5)",
            f"        self.seq = nn.Sequential(nn.Linear({self.width}, 4, dtype=torch.{self.dtype}), nn.ReLU(), nn.Linear(4, 2, dtype=torch.{self.dtype}))",  # noqa: E501 - text of a program
            f"        self.register_buffer('buf', torch.ones({self.width}, dtype=torch.{self.dtype}))",
            "        self.count = 0",
            "        self.scale = 1.5",
            "        self.cache = {}",
            "        self.seen = []",
            "",
            "    def step(self, t, by=1):",
            "        self.count += by",
            "        return t * self.scale",
            "",
            "    def forward(self, x, y, z, i, m, n, s, items, table, box):",
        ]
        return made, 2

    def shape(self, form: tuple[object, ...], call: int) -> tuple[int, ...]:
        sizes = {"N": self.sizes[call], "C": self.width, "B": self.batch, "H": 3}
        return tuple(sizes.get(n, n) for n in form)  # type: ignore[misc,call-overload]

    def _argument(self, k: int, call: int) -> str:
        form, dtype, layout, grad = self.tensors[k]
        more = f", '{layout}'" if layout != "plain" or grad else ""
        more += ", True" if grad else ""
        return f"tensor({self.noise + 10 * call + k}, {self.shape(form, call)}, torch.{dtype}{more})"

    def arguments(self, call: int) -> str:
        made = [self._argument(k, call) for k in range(3)]
        made.append(f"tensor({self.noise + call}, ({3},), torch.int64)")
        made.append(f"tensor({self.noise - call}, ({self.sizes[call]},), torch.bool)")
        return ", ".join([*made, str(self.numbers[call]), str(self.floats[call])])

    def source(self) -> str:
        box = f"tensor({self.noise + 77}, {self.shape(self.box_form, 0)}, torch.{self.box_dtype})"
        k = f"tensor({self.noise + 78}, ({self.width},), torch.{self.dtype})"
        start = "f" if not self.is_module else f"Model().train({self.training})"
        lines = [
            "def arguments(call):",
            *(f"    if call == {call}: return {self.arguments(call)}" for call in range(self.calls)),
            "",
            "def state():",
            f"    return [{k}, 1, 2], {{'k': {k}, 1: 'one'}}, Box({box}, [1])",
            "",
            "def make():",
            "    torch.default_generator.manual_seed(7)",
            f"    return {start}",
        ]
        return "\n".join(lines) + "\n"
