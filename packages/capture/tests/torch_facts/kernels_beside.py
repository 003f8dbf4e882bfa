"""Runs programs with every ATen call made twice: for real, and by the fake kernel on tensors of the same metadata.

``Beside`` is a dispatch mode that compares what both say of dtype, shape, strides, offset, device and shared memory, and
which results are undefined. The programs are torch's databases of operators, in every dtype, in pairs of dtypes, and with
arguments that lie in memory in other ways, forward and backward.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode

# Who asked for samples is found by reading the source of the whole stack, which takes a third of a sweep.
common_utils.extract_test_fn = lambda: None

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
PAIRS = (
    (torch.float32, torch.float64),
    (torch.float64, torch.float32),
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float16),
    (torch.float32, torch.int64),
    (torch.int64, torch.float32),
    (torch.int32, torch.int64),
    (torch.bool, torch.int64),
    (torch.float32, torch.complex64),
)
UNKNOWN = (DataDependentOutputException, DynamicOutputShapeException)
SKIPPED = frozenset({"aten::_local_scalar_dense", "aten::lift_fresh", "aten::is_same_size"})


@dataclass
class Beside(TorchDispatchMode):
    """``found`` maps a call's operator and what differs to an example; ``counts`` says how many calls were compared."""

    symbols: bool = False
    found: dict[tuple[str, str], str] = field(default_factory=dict)
    counts: Counter = field(default_factory=Counter)
    label: str = ""

    def __post_init__(self):
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        known = all(x.layout is torch.strided and type(x) in (Tensor, torch.nn.Parameter) for x in tensors)
        if func._schema.name in SKIPPED or not known:
            return func(*args, **kwargs)
        before = described((args, kwargs))
        fake = self.fake(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.counts["refused by eager"] += 1
            raise
        self.compare(func, before, fake, result, (args, kwargs))
        return result

    def fake(self, func, args, kwargs):
        mode = CaptureFakeMode()
        if self.symbols:
            mode.use_symbols(CaptureShapeEnv(tuple))
        made: dict[int, Tensor] = {}

        def fake_of(x: Tensor) -> Tensor:
            if id(x) not in made:
                made[id(x)] = mode.from_tensor(x.detach(), static_shapes=not self.symbols)
            return made[id(x)]

        try:
            given = tree_map_only(Tensor, fake_of, (args, kwargs))
        except Exception:
            return None
        try:
            with mode:
                return func(*given[0], **given[1]), given
        except UNKNOWN:
            return None
        except Exception as error:
            return error, given

    def compare(self, func, before, fake, result, given) -> None:
        if fake is None:
            self.counts["unknown"] += 1
            return
        self.counts["compared"] += 1
        if isinstance(fake[0], Exception):
            text = " ".join(f"{type(fake[0]).__name__}: {fake[0]}".split())[:150]
            self.note(func, "raises", before, f"fake raises {text}")
            return
        found = difference(fake[0], result, fake[1], given)
        if found is not None:
            self.note(func, found[0], before, found[1])

    def note(self, func, kind, before, text) -> None:
        self.counts["differences"] += 1
        self.found.setdefault((str(func), kind), f"{text} [{self.label}] {before}"[:600])


def described(value: Any) -> str:
    return str(tree_map(lambda x: metadata(x) if isinstance(x, Tensor) else x, value))


def metadata(x: Tensor) -> str:
    return f"{str(x.dtype)[6:]}{list(x.shape)}/{list(x.stride())}"


def numbers(values) -> tuple:
    return tuple(v if type(v) is int else v.node.hint for v in values)


def difference(fake, real, fake_given, given) -> tuple[str, str] | None:
    """What differs, as a kind and in words."""
    mine, theirs = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (fake, real))
    if len(mine) != len(theirs):
        return "count", f"{len(mine)} results, not {len(theirs)}"
    for k, (a, b) in enumerate(zip(mine, theirs)):
        if isinstance(b, (list, tuple)):
            found = difference(a, b, fake_given, given)
        elif isinstance(a, Tensor) and isinstance(b, Tensor):
            found = of_tensors(a, b) or of_aliases(a, b, fake_given, given)
        elif isinstance(a, Tensor) or isinstance(b, Tensor):
            found = "undefined", f"{a!r}, not {b!r}"[:100]
        else:
            found = None
        if found is not None:
            return found[0], f"result {k}: {found[1]}"
    return None


def of_tensors(a: Tensor, b: Tensor) -> tuple[str, str] | None:
    if a.dtype is not b.dtype:
        return "dtype", f"{a.dtype}, not {b.dtype}"
    if numbers(a.shape) != tuple(b.shape):
        return "shape", f"{tuple(a.shape)}, not {tuple(b.shape)}"
    if a.device != b.device or a.layout is not b.layout:
        return "device", f"{a.device} {a.layout}, not {b.device} {b.layout}"
    if b.layout is not torch.strided:
        return None
    own = numbers(a.stride())
    if own != b.stride():
        matters = b.numel() and any(
            n > 1 and x != y for n, x, y in zip(b.shape, own, b.stride(), strict=True)
        )
        kind = "strides" if matters else "strides of one element" if b.numel() else "empty strides"
        return kind, f"{own}, not {b.stride()} for {tuple(b.shape)}"
    if numbers([a.storage_offset()]) != (b.storage_offset(),):
        return "offset", f"{a.storage_offset()}, not {b.storage_offset()}"
    if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
        return "bits", f"conj, neg {a.is_conj(), a.is_neg()}, not {b.is_conj(), b.is_neg()}"
    return None


def of_aliases(a: Tensor, b: Tensor, fake_given, given) -> tuple[str, str] | None:
    mine, theirs = ([x for x in tree_leaves(g) if isinstance(x, Tensor)] for g in (fake_given, given))
    same = [x is a for x in mine], [x is b for x in theirs]
    if same[0] != same[1]:
        return "identity", f"is argument {same[0]}, not {same[1]}"
    if b.numel() == 0:
        return None
    shares = [
        [x.untyped_storage()._cdata == y.untyped_storage()._cdata for y in ys]
        for x, ys in ((a, mine), (b, theirs))
    ]
    return None if shares[0] == shares[1] else ("aliases", f"shares {shares[0]}, not {shares[1]}")


# --- how tensors lie in memory ---------------------------------------------------------------------------------


def permuted(x: Tensor, draw: random.Random) -> Tensor:
    order = draw.sample(range(x.dim()), x.dim())
    return x.permute(order).contiguous().permute([order.index(k) for k in range(x.dim())])


def sliced(x: Tensor, draw: random.Random) -> Tensor:
    dim = draw.randrange(x.dim())
    return x.repeat_interleave(2, dim).narrow(dim, 0, x.shape[dim] * 2)[
        tuple(slice(None, None, 2 if k == dim else None) for k in range(x.dim()))
    ]


def expanded(x: Tensor, draw: random.Random) -> Tensor:
    dim = draw.randrange(x.dim())
    return x.narrow(dim, 0, 1).expand(x.shape) if x.shape[dim] > 1 else x


def channels_last(x: Tensor, draw: random.Random) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else permuted(x, draw)


def odd_ones(x: Tensor, draw: random.Random) -> Tensor:
    strides = [draw.choice([1, 3, 77]) if n == 1 else s for n, s in zip(x.shape, x.stride())]
    return x.as_strided(x.shape, strides, x.storage_offset())


LAYOUTS = {
    "plain": lambda x, draw: x,
    "permuted": permuted,
    "sliced": sliced,
    "expanded": expanded,
    "channels_last": channels_last,
    "odd_ones": odd_ones,
}


def laid_out(value: Any, layout: str, draw: random.Random) -> Any:
    """``value`` with its tensors in another layout."""

    def again(x: Tensor) -> Tensor:
        if x.layout is not torch.strided or x.dim() == 0 or x.numel() == 0 or x.is_conj():
            return x
        made = LAYOUTS[layout](x.detach(), draw)
        return made.requires_grad_(x.requires_grad)

    return tree_map_only(Tensor, again, value)


# --- programs ---------------------------------------------------------------------------------------------------

Program = tuple[str, Callable[[], Any]]


def with_backward(call: Callable[[], Any]) -> None:
    results = [x for x in tree_leaves(call()) if isinstance(x, Tensor) and x.requires_grad]
    if results:
        torch.autograd.backward(results, [torch.ones_like(x) for x in results])


def samples_of(op, dtype, count, grad) -> list:
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = op.sample_inputs("cpu", dtype, requires_grad=grad)
            return list(itertools.islice(made, count))
    except Exception:
        return []


def name_of(op) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def of_operators(ops=op_db, dtypes=DTYPES, layouts=tuple(LAYOUTS), samples: int = 6) -> Iterator[Program]:
    """Every operator, dtype and layout."""
    for op, dtype in itertools.product(ops, dtypes):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        found = samples_of(op, dtype, samples, grad)
        for layout, (k, sample) in itertools.product(layouts, enumerate(found)):
            draw = random.Random(f"{name_of(op)} {k} {layout}")

            def call(op=op, sample=sample, layout=layout, draw=draw):
                tree = (sample.input, sample.args, sample.kwargs)
                x, args, kwargs = laid_out(tree, layout, draw)
                with_backward(lambda: op(x, *args, **kwargs))

            yield f"{name_of(op)} {str(dtype)[6:]} {layout} {k}", call


def of_pairs(ops=op_db, pairs=PAIRS, samples: int = 4) -> Iterator[Program]:
    """Every operator of several tensors, the first of one dtype and the others of another."""
    for op, (first, second) in itertools.product(ops, pairs):
        grad = op.supports_autograd and first.is_floating_point
        base = first if first in op.supported_dtypes("cpu") else torch.float32
        for k, sample in enumerate(samples_of(op, base, samples, grad)):
            leaves = [x for x in tree_leaves((sample.args, sample.kwargs)) if isinstance(x, Tensor)]
            if not leaves:
                continue

            def call(op=op, sample=sample, first=first, second=second):
                x = in_dtype(sample.input, first)
                args, kwargs = in_dtype((sample.args, sample.kwargs), second)
                with_backward(lambda: op(x, *args, **kwargs))

            yield f"{name_of(op)} {str(first)[6:]} {str(second)[6:]} {k}", call


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    def convert(x: Tensor) -> Tensor:
        made = x.detach().to(dtype)
        floating = dtype.is_floating_point or dtype.is_complex
        return made.requires_grad_(x.requires_grad and floating)

    return tree_map_only(Tensor, convert, value)


def of_outs(ops=op_db, samples: int = 2) -> Iterator[Program]:
    """Operators with ``out=``: of the result's dtype, of a wider one, of another size, and permuted."""
    for op in ops:
        if not op.supports_out or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        for k, sample in enumerate(samples_of(op, torch.float32, samples, False)):
            for kind in ("same", "double", "empty", "permuted"):

                def call(op=op, sample=sample, kind=kind):
                    result = op(sample.input, *sample.args, **sample.kwargs)
                    out = tree_map_only(Tensor, lambda x: out_for(x, kind), result)
                    out = tuple(out) if isinstance(out, tuple) else out
                    op(sample.input, *sample.args, **sample.kwargs, out=out)

                yield f"{name_of(op)} out={kind} {k}", call


def out_for(x: Tensor, kind: str) -> Tensor:
    if kind == "double":
        return torch.empty_like(x, dtype=torch.float64)
    if kind == "empty":
        return torch.empty(0, dtype=x.dtype)
    if kind == "permuted":
        return permuted(torch.empty_like(x), random.Random(0))
    return torch.empty_like(x)


def run(programs: Iterator[Program], *, symbols: bool = False) -> Beside:
    beside = Beside(symbols)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, call in programs:
            beside.label = label
            beside.counts["programs"] += 1
            try:
                with beside:
                    call()
            except Exception:
                beside.counts["programs that raise"] += 1
    return beside
