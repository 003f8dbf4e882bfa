"""Random programs of all dtypes against eager and against float64: shapes, strides, broadcasting, reductions, indexing.

    python packages/inductor/tests/sweeps/expressions.py [--count 300] [--seed 0] [--batch 8] [--symbolic] [--seconds 600]

``--batch`` programs are one graph (one run of the C compiler). Integers and booleans must be eager's exactly. A float may
differ from eager by rounding: it must be as close to the same program in float64 as eager is, with a margin. Elements that
change in eager when every value is rounded a little otherwise (a tie, a floor) decide nothing; programs that differ in such
elements alone are counted. Prints each difference with the seed that repeats it, and totals.
"""

import argparse
import random
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi

warnings.filterwarnings("ignore")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
SHAPES = [(4, 6), (1, 6), (4, 1), (3, 4, 6), (6,), (2, 3, 1, 6), (), (4, 4), (4, 4, 4), (2, 4, 2, 4)]


def floating(x):
    return x if x.is_floating_point() else x.to(torch.float32)


def number(x):
    return x.to(torch.int64) if x.dtype is torch.bool else x


UNARY = {
    "neg": lambda x, r: -number(x),
    "abs": lambda x, r: number(x).abs(),
    "sin": lambda x, r: floating(x).sin(),
    "tanh": lambda x, r: floating(x).tanh(),
    "sigmoid": lambda x, r: floating(x).sigmoid(),
    "exp": lambda x, r: (-floating(x).abs()).exp(),
    "square": lambda x, r: number(x).clamp(-3, 3).square(),
    "sqrt": lambda x, r: floating(x).abs().sqrt(),
    "relu": lambda x, r: number(x).relu(),
    "sign": lambda x, r: x.sign(),
    "not": lambda x, r: x == 0,
    "where": lambda x, r: torch.where(x > 0, number(x), 1),
    "clamp": lambda x, r: number(x).clamp(-1, 2),
    "transpose": lambda x, r: x.transpose(0, -1) if x.dim() > 1 else x,
    "permute": lambda x, r: x.permute(r.sample(range(x.dim()), x.dim())),
    "flip": lambda x, r: x.flip(r.randrange(x.dim())) if x.dim() else x,
    "roll": lambda x, r: x.roll(2, r.randrange(x.dim())) if x.dim() else x,
    "slice": lambda x, r: x[..., 1::2] if x.dim() else x,
    "select": lambda x, r: x.select(r.randrange(x.dim()), -1) if x.dim() else x,
    "flatten": lambda x, r: x.reshape(-1),
    "fold": lambda x, r: x.reshape(2, -1) if x.numel() % 2 == 0 else x,
    "unsqueeze": lambda x, r: x.unsqueeze(r.randrange(x.dim() + 1)),
    "sum": lambda x, r: x.sum(r.randrange(x.dim()), keepdim=r.random() < 0.5) if x.dim() else x,
    "total": lambda x, r: x.sum(),
    "mean": lambda x, r: floating(x).mean(-1, keepdim=True) if x.dim() else floating(x),
    "max": lambda x, r: x.amax(r.randrange(x.dim())) if x.dim() else x,
    "argmax": lambda x, r: number(x).argmax(r.randrange(x.dim())) if x.dim() else x,
    "any": lambda x, r: (x > 0).any(-1) if x.dim() else x,
    "softmax": lambda x, r: floating(x).softmax(-1) if x.dim() else x,
    "var": lambda x, r: floating(x).var(-1, unbiased=False) if x.dim() else x,
    "cat": lambda x, r: torch.cat([x, x.flip(0)], r.randrange(x.dim())) if x.dim() else x,
    "pad": lambda x, r: torch.nn.functional.pad(number(x), (1, 2)) if x.dim() else x,
    "gather": lambda x, r: x.index_select(0, torch.tensor([0, 0])) if x.dim() else x,
    "index": lambda x, r: x[torch.tensor([-1, 0])] if x.dim() else x,
    "half": lambda x, r: floating(x).to(torch.bfloat16),
    "int": lambda x, r: (floating(x).clamp(-9, 9) * 2).to(torch.int32),
    "double": lambda x, r: x.to(torch.float64),
    "triangle": lambda x, r: x.tril() if x.dim() > 1 else x,
    "cumsum": lambda x, r: x.cumsum(r.randrange(x.dim())) if x.dim() else x,
    "cumprod": lambda x, r: x.clamp(-1, 1).cumprod(r.randrange(x.dim())) if x.dim() else x,
    "cummax": lambda x, r: x.cummax(r.randrange(x.dim()))[r.randrange(2)] if x.dim() else x,
    "rotate": lambda x, r: torch.cat([-number(x)[..., 1:], number(x)[..., :1]], -1),
    "widen": lambda x, r: torch.nn.functional.pad(number(x), (2, 0, -1, 3)) if x.dim() > 1 else x,
    "stack": lambda x, r: torch.stack([number(x), number(x) * 2], r.randrange(x.dim() + 1)),
    "put": lambda x, r: x.index_copy(0, torch.tensor([0]), x[-1:]) if x.dim() else x,
    "scatter": lambda x, r: scattered(number(x), r),
    "diagonal": lambda x, r: x.triu(1) + x.tril(-1) if x.dim() > 1 else x,
    "shuffle": lambda x, r: x.index_select(*places(x, r, 1)) if x.dim() else x,
    "pick": lambda x, r: x.gather(*chosen(x, r)) if x.dim() else x,
    "windows": lambda x, r: x.unfold(r.randrange(x.dim()), 1, 1) if x.dim() else x,
    "pairs": lambda x, r: x.unfold(-1, 2, 1) if x.dim() and x.shape[-1] > 1 else x,
    "pool": lambda x, r: F.avg_pool1d(rows(floating(x)), 2, 1) if x.dim() > 1 else x,
    "peaks": lambda x, r: F.max_pool1d(rows(floating(x)), 2, 2) if x.dim() > 1 else x,
    "normalise": lambda x, r: F.layer_norm(floating(x), x.shape[-1:]) if x.dim() else x,
    "logsoftmax": lambda x, r: floating(x).log_softmax(r.randrange(x.dim())) if x.dim() else x,
    "logsumexp": lambda x, r: floating(x).logsumexp(r.randrange(x.dim())) if x.dim() else x,
    "min": lambda x, r: x.amin(r.randrange(x.dim()), keepdim=True) if x.dim() else x,
    "largest": lambda x, r: number(x).max(r.randrange(x.dim()))[r.randrange(2)] if x.dim() else x,
    "product": lambda x, r: x.clamp(-2, 2).prod(r.randrange(x.dim())) if x.dim() else x,
    "spread": lambda x, r: floating(x).std(r.randrange(x.dim()), correction=0) if x.dim() else x,
    "center": lambda x, r: floating(x) - floating(x).mean(0, keepdim=True) if x.dim() else x,
    "repeat": lambda x, r: x.repeat_interleave(2, r.randrange(x.dim())) if x.dim() else x,
    "tile": lambda x, r: x.repeat(2, *[1] * x.dim()),
    "expand": lambda x, r: x.unsqueeze(0).expand(2, *x.shape),
    "move": lambda x, r: x.movedim(0, -1) if x.dim() else x,
    "every": lambda x, r: x[::2] if x.dim() else x,
    "clone": lambda x, r: x.clone() if r.random() < 0.5 else x.contiguous(),
    "mask": lambda x, r: number(x).masked_fill(x > 1, 2),
    "gram": lambda x, r: floating(x) @ floating(x).mT if x.dim() > 1 else x,
    "accumulate": lambda x, r: accumulated(number(x), r),
    "extremes": lambda x, r: (
        number(x).scatter_reduce(*chosen(x, r), number(x), r.choice(["amax", "sum"])) if x.dim() else x
    ),
}


def rows(x):
    return x.flatten(0, -2)[None]


def places(x, r, times):
    """A dimension, and an order (repeated so often) of its indices."""
    dim = r.randrange(x.dim())
    return dim, torch.tensor(r.sample(range(x.shape[dim]), x.shape[dim]) * times)


def chosen(x, r):
    """A dimension, and an index into it for each element of ``x``."""
    dim = r.randrange(x.dim())
    return dim, torch.tensor([r.randrange(x.shape[dim]) for _ in range(x.numel())]).reshape(x.shape)


def accumulated(x, r):
    """Slices of ``x`` put into some of its slices, sums where they meet."""
    if not x.dim():
        return x
    at = torch.tensor([r.randrange(x.shape[0]) for _ in range(3)])
    return x.index_put((at,), x[at.flip(0)], accumulate=True)


def scattered(x, r):
    """Slices of ``x`` added to, or set in, some of its slices."""
    if not x.dim():
        return x
    dim = r.randrange(x.dim())
    at = torch.tensor([r.randrange(x.shape[dim]) for _ in range(3)])
    source = x.index_select(dim, at.flip(0))
    return x.index_add(dim, at, source) if r.random() < 0.7 else x.index_fill(dim, at, 2)


BINARY = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": lambda a, b: number(a) - number(b),
    "maximum": torch.maximum,
    "lt": torch.lt,
    "div": lambda a, b: floating(a) / (floating(b).abs() + 1),
    "floordiv": lambda a, b: number(a) // 3 + number(b),
    "remainder": lambda a, b: number(a) % 5 + number(b),
    "select": lambda a, b: torch.where(a > 0, number(a), number(b)),
    "lookup": lambda a, b: (
        a.index_select(0, b.reshape(-1)[:4].nan_to_num(1).long() % a.shape[0]) if a.dim() else a
    ),
    "lookup_last": lambda a, b: a[..., b.nan_to_num(1).long() % a.shape[-1]] if a.dim() and b.dim() else a,
}


def tensors(rng):
    """Inputs of random shapes, dtypes and strides, special values among them."""
    made = []
    for _ in range(3):
        shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
        x = torch.randn(shape[::-1]) * 3
        if dtype.is_floating_point and rng.random() < 0.2 and x.numel() > 2:
            x.view(-1)[0] = rng.choice([float("nan"), float("inf"), -0.0, 1e30])
        x = (x > 0) if dtype is torch.bool else x.abs().to(dtype) if dtype is torch.uint8 else x.to(dtype)
        made.append(x.permute(list(reversed(range(x.dim())))))
    return made


def perturbed(x, noise):
    """``x``, its floats off by up to half of ``noise`` units in the last place of the largest."""
    if not noise or not x.is_floating_point() or not x.numel():
        return x
    largest = x.double().nan_to_num(0, 0, 0).abs().max()
    return (x.double() + largest * noise * torch.finfo(x.dtype).eps * (torch.rand(x.shape) - 0.5)).to(x.dtype)


class Program:
    """Steps drawn once, on the real inputs; replayed on any inputs of the same shapes."""

    def __init__(self, seed):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.seed, self.inputs, self.steps = seed, tensors(rng), []
        values = list(self.inputs)
        for _ in range(rng.randint(2, 9)):
            step = (
                rng.choice([*UNARY, *BINARY]),
                rng.randrange(len(values)),
                rng.randrange(len(values)),
                rng.random(),
            )
            try:
                values.append(self.apply(step, values))
            except (RuntimeError, IndexError, ValueError):
                continue
            if values[-1].numel() > 4096:
                values.pop()
                continue
            self.steps.append(step)
        found = {v.dtype for v in values}
        self.margin = next((m for dtype, m in MARGINS.items() if dtype in found), 1e-9)

    def apply(self, step, values):
        op, a, b, seed = step
        if op in UNARY:
            return UNARY[op](values[a], random.Random(seed))
        return BINARY[op](values[a], values[b])

    def leads_to(self, value):
        """The operations that ``value``, an index of all values, is computed by."""
        if value < len(self.inputs):
            return set()
        op, a, b, _ = self.steps[value - len(self.inputs)]
        return {op} | self.leads_to(a) | (set() if op in UNARY else self.leads_to(b))

    def __call__(self, *inputs, noise=0.0):
        values = [perturbed(x, noise) for x in inputs]
        for step in self.steps:
            values.append(perturbed(self.apply(step, values), noise))
        return tuple(values[len(inputs) :][-3:])


MARGINS = {torch.bfloat16: 4e-2, torch.float16: 5e-3, torch.float32: 4e-5}


UNDECIDED = []
"""Seeds of programs that differ where eager decides by its last digit."""


def strides(x):
    """Those that matter: of dimensions with more than one element."""
    return [t for n, t in zip(x.shape, x.stride()) if n > 1] if x.numel() else []


def close(got, want, planned, exact, margin):
    """None, or how ``got`` differs from eager's ``want``, and in strides from those ``planned`` by the graph.

    ``exact`` is the program in float64, None where it has other values; ``margin`` is the coarsest dtype's.
    """
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{tuple(got.shape)} instead of {want.dtype}{tuple(want.shape)}"
    if strides(got) != strides(planned):
        return f"strides {got.stride()} instead of {planned.stride()}"
    if not want.is_floating_point():
        return None if torch.equal(got, want) else f"{got.flatten()[:4]} instead of {want.flatten()[:4]}"
    if torch.allclose(got, want, margin, margin, equal_nan=True):
        return None
    if exact is not None and exact.shape == got.shape:
        error, theirs = ((t.double() - exact).abs() for t in (got, want))
        # Where eager overflows to NaN and the number is finite there is nothing to be equal to.
        compared = exact.isfinite() & theirs.isfinite()
        error = error.nan_to_num(float("inf")).where(compared, 0)
        theirs = theirs.where(compared, 0)
        if (error <= 2 * theirs + margin * exact.abs().nan_to_num(0) + margin).all():
            return None
    return f"{got.flatten()[:4]} instead of {want.flatten()[:4]}"


def unsettled(program, k, got, want):
    """Whether result ``k`` differs only where eager's own does if each value is rounded a little otherwise."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    differs = ~torch.isclose(got.double(), want.double(), program.margin, program.margin, equal_nan=True)
    for trial in range(8):
        noisy = program(*program.inputs, noise=2.0 + trial)[k]
        differs &= torch.isclose(
            noisy.double(), want.double(), program.margin, program.margin, equal_nan=True
        )
    return not differs.any()


def exactly(program):
    """The results in float64, None for those that are chosen by dtype."""
    count = len(program.inputs) + len(program.steps)
    last = range(len(program.inputs), count)[-3:]
    try:
        results = program(*(x.double() if x.is_floating_point() else x for x in program.inputs))
    except RuntimeError:
        return [None for _ in last]
    chosen = [program.leads_to(value) & {"half", "int"} for value in last]
    return [None if by else result for by, result in zip(chosen, results, strict=True)]


def check(programs, symbolic):
    """Compile the programs as one graph; returns the differences found."""

    def together(*inputs):
        return tuple(t for k, p in enumerate(programs) for t in p(*inputs[3 * k : 3 * k + 3]))

    inputs = [x for p in programs for x in p.inputs]
    mode = "symbolic" if symbolic else "fake"
    raw = torch.func.functionalize(make_fx(together, tracing_mode=mode)(*inputs), remove="mutations")
    graph = make_fx(raw, decomposition_table=fi.decompositions(), tracing_mode=mode)(*inputs)
    compiled = fi.compile_graph(graph, inputs, fi.InductorOptions(use_cache=False))
    defects = [str(f) for f in compiled.lowered.plan.program.fallbacks if f.defect]
    got, found = list(compiled(*inputs)), defects
    planned = [node.meta["val"] for node in graph.graph.output_node().args[0]]
    for program in programs:
        wanted, exact = program(*program.inputs), exactly(program)
        for k, want in enumerate(wanted):
            outcome = got.pop(0)
            problem = close(outcome, want, planned.pop(0), exact[k], program.margin)
            if problem and unsettled(program, k, outcome, want):
                UNDECIDED.append(program.seed)
            elif problem:
                found.append(f"seed {program.seed}: {problem}; {[s[0] for s in program.steps]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--symbolic", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    args = parser.parse_args()
    start, bad, last = time.time(), 0, args.seed
    for first in range(args.seed, args.seed + args.count, args.batch):
        if time.time() - start > args.seconds:
            break
        last = first + args.batch
        programs = [Program(seed) for seed in range(first, first + args.batch)]
        try:
            found = check([p for p in programs if p.steps], args.symbolic)
        except Exception as error:
            found = [f"seeds {first}..{first + args.batch - 1}: {type(error).__name__}: {str(error)[:300]}"]
        bad += len(found)
        for line in found:
            print(line, flush=True)
    undecided = f"{len(set(UNDECIDED))} undecided ({sorted(set(UNDECIDED))[:5]})"
    print(f"{last - args.seed} programs, {bad} differences, {undecided}, {time.time() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--count", "2", "--batch", "2"]
    sys.exit(main())
