"""Random programs of large tensors whose time counts: elementwise operators, reductions, scans, gathers, joins, norms, pools.

``program(seed)`` gives the text of a function, and its inputs. The text reads as a user would write it, so that a slow program
can be taken out and run alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

FLOATS = ("float32", "float32", "bfloat16", "float64")
"""By weight: most programs compute in float32."""
UNARY = (
    *(
        "{x}.sin()",
        "{x}.tanh()",
        "{x}.sigmoid()",
        "(-{x}.abs()).exp()",
        "F.gelu({x})",
        "F.silu({x})",
        "{x}.relu()",
    ),
    *(
        "{x}.square()",
        "{x}.abs().sqrt()",
        "{x} * 0.5 + 1",
        "{x}.clamp(-1, 1)",
        "torch.where({x} > 0, {x}, {x} * 0.1)",
    ),
    *("{x}.erf()", "({x}.abs() + 1).log()", "({x}.abs() + 1).rsqrt()"),
)
BINARY = (
    *("{x} + {y}", "{x} * {y}", "{x} - {y}", "torch.maximum({x}, {y})", "{x} / (1 + {y}.abs())"),
    "torch.where({x} > {y}, {x}, {y} * 2)",
)
ALONG = (
    *(
        "{x}.sum({d}, keepdim=True)",
        "{x}.mean({d}, keepdim=True)",
        "{x}.amax({d}, keepdim=True)",
        "{x}.amin({d}, keepdim=True)",
    ),
    *("{x}.std({d}, keepdim=True)", "{x}.var({d}, keepdim=True)", "{x}.logsumexp({d}, keepdim=True)"),
    "{x}.norm(dim={d}, keepdim=True)",
)
"""Reductions that keep the dimension, so that the result broadcasts against what is left."""
NORMED = (
    *("{x}.softmax({d})", "{x}.log_softmax({d})", "F.layer_norm({x}, {x}.shape[-1:])"),
    "{x} - {x}.mean({d}, keepdim=True)",
    "{x} * ({x}.square().mean({d}, keepdim=True) + 1e-5).rsqrt()",
    "({x} - {x}.mean({d}, keepdim=True)) / ({x}.std({d}, keepdim=True) + 1e-5)",
)
SCANS = (
    "{x}.cumsum({d})",
    "{x}.clamp(-1, 1).cumprod({d})",
    "{x}.cummax({d}).values",
    "{x}.logcumsumexp({d})",
)
FOUND = ("{x}.gather(-1, {x}.argmax(-1, keepdim=True))", "{x}.argmin(-1, keepdim=True) * 0.001")
MOVED = (
    "{x}.flip(-1)",
    "{x}.roll(3, -1)",
    "{x}[..., {order}]",
    "torch.cat([{x}[..., 5:], {x}[..., :5]], -1)",
)
IMAGES = (
    "F.avg_pool2d({x}, 3, 1, 1)",
    "F.max_pool2d({x}, 3, 1, 1)",
    "F.conv2d({x}, {kernel}, padding=1, groups={x}.shape[1])",
)
WHOLE = (
    *("{x} + {y}", "{x} * {y}", "{x} - {y}", "torch.maximum({x}, {y})", "torch.minimum({x}, {y})"),
    *("{x}.clamp(-3, 3)", "{x} * 2 + 1", "torch.where({x} > 0, {x}, -{x})"),
)
"""For integers."""
_KINDS: dict[str, tuple[tuple[int, tuple[str, ...], str], ...]] = {
    "floats": (
        (5, UNARY, "full"),
        (5, BINARY, "full"),
        (3, ALONG, "small"),
        (2, NORMED, "full"),
        (1, SCANS, "full"),
        (1, FOUND, "small"),
        (1, MOVED, "full"),
    ),
    "int64": (
        (6, WHOLE, "full"),
        (2, (ALONG[0], *ALONG[2:4]), "small"),
        (1, (SCANS[0], SCANS[2]), "full"),
        (1, MOVED, "full"),
    ),
}
"""Weight, texts, and whether the result has the full shape, by dtype."""


@dataclass(frozen=True)
class Program:
    """A function's text, and how to make its inputs."""

    seed: int
    text: str
    dtype: str
    shape: tuple[int, ...]
    layouts: tuple[str, ...]
    """The layout of each input of the full shape: see ``LAYOUTS``."""

    def function(self) -> Callable[..., object]:
        """Compile the text."""
        space: dict[str, object] = {"torch": torch, "F": torch.nn.functional}
        exec(self.text, space)
        return space["program"]

    def inputs(self) -> list[torch.Tensor]:
        """Return tensors of the full shape, then one along the last dimension, one along the others, and indices."""
        generator = torch.Generator().manual_seed(self.seed)
        dtype = getattr(torch, self.dtype)

        def made(*shape: int) -> torch.Tensor:
            if not dtype.is_floating_point:
                return torch.randint(-9, 9, shape, generator=generator, dtype=dtype)
            return torch.randn(shape, generator=generator).to(dtype)

        full = [LAYOUTS[layout](made, self.shape) for layout in self.layouts]
        kernel = [made(self.shape[1], 1, 3, 3)] if len(self.shape) == 4 and dtype.is_floating_point else []
        order = torch.randperm(self.shape[-1], generator=generator)
        return [*full, made(self.shape[-1]), made(*self.shape[:-1], 1), order, *kernel]


def _transposed(made: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    *outer, rows, columns = shape
    return made(*outer, columns, rows).transpose(-1, -2)


def _widened(made: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    return made(*shape[:-1], shape[-1] + 3)[..., 1:-2]


LAYOUTS: dict[str, Callable[..., torch.Tensor]] = {
    "contiguous": lambda made, shape: made(*shape),
    "transposed": _transposed,
    "every second": lambda made, shape: made(*shape[:-1], 2 * shape[-1])[..., ::2],
    "part of wider rows": _widened,
    "expanded": lambda made, shape: made(1, *shape[1:]).expand(shape),
}
_WEIGHTS = (6, 1, 1, 1, 1)


def _shape(rng: random.Random, elements: int) -> tuple[int, ...]:
    """Return sizes with about so many elements: long and short rows, odd and even ones, batches, images."""
    columns = rng.choice([7, 33, 64, 100, 256, 768, 1000, 1024, 2000, 4096, 50257])
    rows = max(2, elements // columns)
    kind = rng.random()
    if kind < 0.6:
        return rows, columns
    if kind < 0.8:
        batch = rng.choice([2, 8, 12, 64])
        return batch, max(2, rows // batch), columns
    channels, side = rng.choice([8, 32, 64]), rng.choice([14, 28, 56, 112])
    return max(1, elements // (channels * side * side)), channels, side, side


class _Writer:
    """Writes the lines of one program."""

    def __init__(self, seed: int, elements: int) -> None:
        self.rng = rng = random.Random(seed)
        self.shape = _shape(rng, round(elements * 10 ** rng.uniform(0, 1)))
        self.dtype = rng.choice([*FLOATS, "int64"])
        self.layouts = tuple(rng.choices([*LAYOUTS], _WEIGHTS)[0] for _ in range(rng.randint(1, 3)))
        self.full = [f"x{k}" for k in range(len(self.layouts))]
        self.small = ["row", "column"]
        self.lines: list[str] = []

    def value(self, names: list[str]) -> str:
        """Choose a value; the newest ones are the likeliest, so that programs are chains more than bushes."""
        return names[-1] if self.rng.random() < 0.5 else self.rng.choice(names)

    def write(self, text: str, kept: list[str]) -> None:
        """Write a line, whose result joins ``kept``."""
        rng = self.rng
        dim = rng.choice([-1, -1, 0, len(self.shape) - 2])
        names = {"x": self.value(self.full), "y": self.value([*self.full, *self.small]), "d": dim}
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text.format(**names, order='order', kernel='kernel')}")
        kept.append(name)

    def step(self) -> None:
        """Write a line of one kind of operator."""
        kinds = [*_KINDS["int64" if self.dtype == "int64" else "floats"]]
        if len(self.shape) == 4 and self.dtype != "int64":
            kinds.append((2, IMAGES, "full"))
        _, texts, kept = self.rng.choices(kinds, [weight for weight, _, _ in kinds])[0]
        self.write(self.rng.choice(texts), self.full if kept == "full" else self.small)

    def program(self, seed: int) -> Program:
        """Write 2 to 12 lines. Values that nothing reads are results: their sums are not, which would add reductions."""
        for _ in range(self.rng.randint(2, 12)):
            self.step()
        read = " ".join(line.partition(" = ")[2] for line in self.lines)
        made = [line.partition(" = ")[0] for line in self.lines]
        results = [name for name in made if not _occurs(name, read)]
        has_kernel = len(self.shape) == 4 and self.dtype != "int64"
        parameters = [
            *(f"x{k}" for k in range(len(self.layouts))),
            "row",
            "column",
            "order",
            *["kernel"] * has_kernel,
        ]
        body = "\n".join(f"    {line}" for line in self.lines)
        text = f"def program({', '.join(parameters)}):\n{body}\n    return {', '.join(results)},\n"
        return Program(seed, text, self.dtype, self.shape, self.layouts)


def _occurs(name: str, text: str) -> bool:
    """Whether a name is a word of a text."""
    return any(word == name for word in "".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def program(seed: int, elements: int = 1_000_000) -> Program:
    """Return the program of a seed, whose tensors have ``elements`` to ten times as many elements."""
    return _Writer(seed, elements).program(seed)
