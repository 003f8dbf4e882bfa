"""Operators at extents of 0 to 3: loop nests without loops, with one point, and with nothing in them.

``PROGRAMS`` has functions of ``(x, at)`` by name: a tensor, and positions in its first dimension. Some change ``x`` in place and
return nothing. What eager refuses for a shape or a dtype is no case. ``differences`` compares many shapes in one graph.
"""

import itertools
import warnings

import torch
import torch.nn.functional as F
from inductor_checks import TOLERANCE, copies, trace

import fxstack_inductor as fi

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
EXTENTS = (0, 1, 2, 3)
SHAPES = [
    *itertools.product(EXTENTS, repeat=1),
    *itertools.product(EXTENTS, repeat=2),
    *[s for s in itertools.product((0, 1, 3), repeat=3) if s.count(3) < 3],
]
COUNTS = (0, 1, 2, 3)


def rows(x, at):
    """As many rows as there are positions, other than those of ``x``."""
    return (x[:1] * 0 + 1).expand(at.shape[0], *x.shape[1:])


def along(x, at):
    """``at`` as an index of all dimensions of ``x``."""
    return at.reshape(-1, *[1] * (x.dim() - 1)).expand(at.shape[0], *x.shape[1:])


def puts(**given):
    def run(x, at):
        x.index_put_((at,), rows(x, at), **given)

    return run


def reduces(how, include):
    def run(x, at):
        x.scatter_reduce_(0, along(x, at), rows(x, at), how, include_self=include)

    return run


def index_reduces(how, include):
    def run(x, at):
        x.index_reduce_(0, at, rows(x, at), how, include_self=include)

    return run


def assign(where, value):
    def run(x, at):
        x[where] = value

    return run


def set_at(x, at):
    x[at] = 1


def set_at_of_at(x, at):
    x[at[torch.arange(at.shape[0])]] = 1


def set_one(x, at):
    x[at[0]] = 1


def set_first_two(x, at):
    x[at, at] = 1


def copy_rows(x, at):
    x[at] = rows(x, at) + x[at]


SCATTERS = {
    "index_put": puts(),
    "index_put with sums": puts(accumulate=True),
    "index_add": lambda x, at: (x.index_add_(0, at, rows(x, at)), None)[1],
    "index_add scaled": lambda x, at: (x.index_add_(0, at, rows(x, at), alpha=2), None)[1],
    "index_copy": lambda x, at: (x.index_copy_(0, at, rows(x, at)), None)[1],
    "index_fill": lambda x, at: (x.index_fill_(0, at, 2), None)[1],
    "scatter a number": lambda x, at: (x.scatter_(0, along(x, at), 2), None)[1],
    "scatter": lambda x, at: (x.scatter_(0, along(x, at), rows(x, at)), None)[1],
    "scatter_add": lambda x, at: (x.scatter_add_(0, along(x, at), rows(x, at)), None)[1],
    **{
        f"scatter_reduce {how} {include}": reduces(how, include)
        for how in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    **{
        f"index_reduce {how} {include}": index_reduces(how, include)
        for how in ("prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    "set": set_at,
    "set by looked up": set_at_of_at,
    "set one": set_one,
    "set two": set_first_two,
    "copy rows": copy_rows,
    "masked_fill": lambda x, at: (x.masked_fill_(x > 0, 1), None)[1],
    "set slice": assign(slice(1, None), 1),
    "set none": assign(slice(0, 0), 1),
    "set columns": assign((Ellipsis, slice(None, -1)), 1),
    "set step": assign(slice(None, None, 2), 1),
    "set first": assign(0, 1),
    "set last": assign((Ellipsis, -1), 1),
    "out of place": lambda x, at: x.scatter(0, along(x, at), rows(x, at)) + x,
    "put and read": lambda x, at: x.index_put((at,), rows(x, at)).sum(0),
}


def wide(x):
    return x if x.is_floating_point() else x.float()


def number(x):
    return x.to(torch.int64) if x.dtype is torch.bool else x


REDUCTIONS = {
    f"{name} {dim}": (lambda x, at, f=f, dim=dim: f(x, dim))
    for name, f in {
        "sum": lambda x, d: x.sum(d),
        "prod": lambda x, d: x.prod(d),
        "mean": lambda x, d: wide(x).mean(d, keepdim=True),
        "amax": lambda x, d: x.amax(d),
        "amin": lambda x, d: x.amin(d, keepdim=True),
        "max": lambda x, d: tuple(x.max(d)),
        "argmax": lambda x, d: number(x).argmax(d),
        "argmin": lambda x, d: number(x).argmin(d),
        "any": lambda x, d: x.any(d),
        "all": lambda x, d: x.all(d),
        "var": lambda x, d: wide(x).var(d, correction=0),
        "std": lambda x, d: wide(x).std(d, correction=1),
        "logsumexp": lambda x, d: wide(x).logsumexp(d),
        "norm": lambda x, d: torch.linalg.vector_norm(wide(x), 2, d),
        "softmax": lambda x, d: wide(x).softmax(d),
        "log_softmax": lambda x, d: wide(x).log_softmax(d),
        "cumsum": lambda x, d: x.cumsum(d),
        "cumprod": lambda x, d: x.cumprod(d),
        "cummax": lambda x, d: tuple(x.cummax(d)),
        "cummin": lambda x, d: tuple(x.cummin(d)),
        "logcumsumexp": lambda x, d: wide(x).logcumsumexp(d),
        "centred": lambda x, d: wide(x) - wide(x).mean(d, keepdim=True),
        "sum of shifted": lambda x, d: (number(x) + 1).cumsum(d).sum(d),
    }.items()
    for dim in (0, -1)
}
WHOLE = {
    "sum": lambda x, at: x.sum(),
    "sum of two": lambda x, at: x.sum((0, -1)) if x.dim() > 1 else x.sum(0),
    "amax of two": lambda x, at: x.amax((0, -1)) if x.dim() > 1 else x.amax(0),
    "var of all": lambda x, at: wide(x).var(),
    "mean of all": lambda x, at: wide(x).mean(),
    "argmax of all": lambda x, at: number(x).argmax(),
    "any of all": lambda x, at: x.any(),
    "max of all": lambda x, at: x.max(),
    "layer_norm": lambda x, at: F.layer_norm(wide(x), x.shape[-1:]),
    "group_norm": lambda x, at: F.group_norm(wide(x).unsqueeze(0), 1),
    "normalize": lambda x, at: F.normalize(wide(x), dim=-1),
}
BORDERS = {
    "cat": lambda x, at: torch.cat([x, x[:1], x]),
    "cat last": lambda x, at: torch.cat([x, x[..., 1:]], -1),
    "stack": lambda x, at: torch.stack([x, x], -1),
    "pad": lambda x, at: F.pad(number(x), (1, 2)),
    "pad and crop": lambda x, at: F.pad(number(x), (-1, 1)),
    "pad by repeating": lambda x, at: F.pad(wide(x)[None], (1, 1), mode="replicate"),
    "roll": lambda x, at: x.roll(1, 0),
    "roll last": lambda x, at: x.roll(-1, -1),
    "flip": lambda x, at: x.flip(0),
    "slice": lambda x, at: number(x)[1:] * 2,
    "slice both": lambda x, at: number(x)[1:, ..., :-1] * 2,
    "step": lambda x, at: number(x)[..., ::2] + 1,
    "narrow": lambda x, at: x.narrow(-1, 0, x.shape[-1] // 2).sum(-1),
    "transpose": lambda x, at: number(x).transpose(0, -1).contiguous() + 1,
    "permute": lambda x, at: (number(x).movedim(0, -1) + 1).contiguous(),
    "add transposed": lambda x, at: number(x) + number(x).transpose(0, -1),
    "reshape of transposed": lambda x, at: x.transpose(0, -1).reshape(-1),
    "windows": lambda x, at: x.unfold(-1, 1, 1).sum(-1),
    "pairs": lambda x, at: x.unfold(-1, 2, 1).contiguous(),
    "max_pool": lambda x, at: F.max_pool1d(wide(x).reshape(1, 1, -1), 1),
    "max_pool of two": lambda x, at: F.max_pool1d(wide(x).reshape(1, 1, -1), 2, 1),
    "avg_pool": lambda x, at: F.avg_pool1d(wide(x).reshape(1, 1, -1), 2, 1, 1),
    "adaptive pool": lambda x, at: F.adaptive_avg_pool1d(wide(x).reshape(1, 1, -1), 1),
    "diff": lambda x, at: x.diff(dim=-1),
    "triangle": lambda x, at: x.tril() if x.dim() > 1 else x + x,
    "diagonal": lambda x, at: x.diagonal(0, 0, -1) * 1 if x.dim() > 1 else x + x,
    "repeat": lambda x, at: x.repeat(2, *[1] * x.dim()),
    "repeat_interleave": lambda x, at: x.repeat_interleave(2, -1),
    "expand": lambda x, at: x[:1].expand(3, *x.shape[1:]) + x[:1],
    "gather": lambda x, at: x.gather(0, along(x, at)),
    "index": lambda x, at: x[at],
    "index_select": lambda x, at: x.index_select(0, at),
    "take": lambda x, at: x.reshape(-1).take(at),
    "embedding": lambda x, at: F.embedding(at, wide(x)) if x.dim() == 2 else x[at],
    "one_hot": lambda x, at: F.one_hot(at, 4),
    "where": lambda x, at: torch.where(x > 0, x, x[:1]),
    "split": lambda x, at: tuple(number(p) + 1 for p in x.split(1)),
    "chunk": lambda x, at: tuple(number(p) + 1 for p in x.chunk(2, -1)),
    "unbind": lambda x, at: tuple(number(p) + 1 for p in x.unbind(-1)),
    "outer": lambda x, at: x[..., None] * x[..., None, :],
    "converted": lambda x, at: x.to(torch.float16) if x.dtype is not torch.float16 else x.float(),
    "bucketize": lambda x, at: torch.bucketize(wide(x), torch.tensor([0.0, 1.0])),
    "interpolate": lambda x, at: F.interpolate(wide(x).reshape(1, 1, -1), scale_factor=2.0),
}
PROGRAMS = {**SCATTERS, **REDUCTIONS, **WHOLE, **BORDERS}


def make(shape, dtype, count):
    """The inputs of a case: no two elements alike where the dtype allows it; positions meet where they can."""
    total = torch.Size(shape).numel()
    x = ((torch.arange(total) * 7) % 11 - 4.0).reshape(shape)
    x = (x > 0) if dtype is torch.bool else (x.abs() if dtype is torch.uint8 else x).to(dtype)
    return x, (torch.arange(count) * 2) % max(shape[0], 1)


def ran(fn, inputs):
    """Results of eager and what the inputs are then; None if eager refuses."""
    own = copies(inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fn(*own)
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return None
    results = () if result is None else (result if isinstance(result, tuple) else (result,))
    return results, own


def cases(name, dtype, shapes=SHAPES, counts=COUNTS):
    """The inputs of all cases of a program that eager computes."""
    used = counts if name in SCATTERS else counts[1:3]
    made = [make(shape, DTYPES[dtype], count) for shape in shapes for count in used]
    return [inputs for inputs in made if ran(PROGRAMS[name], inputs) is not None]


def together(name, number):
    """One program that does all cases; it has a result of its own if nothing else is returned."""

    def run(*flat):
        results = [flat[0] + 1] if number else []
        for k in range(number):
            found = PROGRAMS[name](*flat[2 * k : 2 * k + 2])
            results += [] if found is None else found if isinstance(found, tuple) else [found]
        return tuple(results)

    return run


def differences(name, dtype, options, made=None):
    """Words about each case that differs from eager, after all were compiled as one graph, or one by one where that fails."""
    made = cases(name, dtype) if made is None else made
    if not made:
        return []
    try:
        found = _compared(name, dtype, options, made)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        if len(made) == 1:
            shape, count = tuple(made[0][0].shape), len(made[0][1])
            return [f"{name} {dtype} {shape} at {count}: {type(error).__name__}: {str(error)[-300:]}"]
        found = True
    if not found:
        return []
    if len(made) == 1:
        return [f"{name} {dtype} {tuple(made[0][0].shape)} at {len(made[0][1])}: {found}"]
    half = len(made) // 2
    parts = (made[:half], made[half:])
    return [text for part in parts for text in differences(name, dtype, options, part)] or [
        f"{name} {dtype}: {found}, only together"
    ]


def _compared(name, dtype, options, made):
    flat = [x for inputs in made for x in inputs]
    fn = together(name, len(made))
    graph = trace(fn, *copies(flat))
    compiled = fi.compile_graph(graph, flat, options)
    if defects := [f for f in compiled.lowered.plan.program.fallbacks if f.defect]:
        return str(defects[0])
    mine, theirs = copies(flat), copies(flat)
    got, want = compiled(*mine), fn(*theirs)
    pairs = [*zip(got, want, strict=True), *zip(mine, theirs, strict=True)]
    for a, b in pairs:
        tolerance = TOLERANCE.get(b.dtype, 0)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{a.shape} {a.dtype}, not {b.shape} {b.dtype}"
        if a.numel() > 1 and a.stride() != b.stride():
            return f"strides {a.stride()}, not {b.stride()}"
        if not torch.allclose(a.double(), b.double(), tolerance, tolerance, equal_nan=True):
            return f"{a.tolist()}, not {b.tolist()}"
    return ""
