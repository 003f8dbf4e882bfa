"""Sweep torch's operator database: every sample through the compiler, against eager.

    python packages/inductor/tests/sweeps/opdb.py [--dtypes float32,int64] [--ops PATTERN] [--samples 6] [--symbolic] [--grad]
        [--seconds 500] [--skip 0] [--threads 1,2,3,8] [--grain 16] [--compiler clang] [--dry]

Prints one line per operator and dtype that differs or fails, and totals. All samples of one operator and
dtype are one graph; if that fails they are compiled one by one. Each graph runs with each number of threads; results are
those of the first number bit for bit, except where threads add up parts of one sum.
"""

import argparse
import re
import sys
import time
import traceback
import warnings

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.strategy import strategy
from fxstack_inductor.schedule.steps import KernelStep

warnings.filterwarnings("ignore")
# Who asked for samples is found by reading the source of the whole stack, which takes a third of a sweep.
common_utils.extract_test_fn = lambda: None
# The database seeds the generator inside these, which a graph cannot show, or they return uninitialised memory.
SEEDED = {"multinomial", "normal", "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "uniform"}
TABLE = fi.decompositions()
SEED = 42
"""What the database itself seeds some operators with, inside: so one sample of those has the same random numbers here."""


def function_of(op, samples, grad):
    if "rand" in op.name or "empty" in op.name or "dropout" in op.name or op.name in SEEDED:
        return None, []
    trees = [(s.input, s.args, s.kwargs) for s in samples]
    leaves, spec = pytree.tree_flatten(trees)
    where = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[k].detach() for k in where]

    def run(*values):
        filled = list(leaves)
        for k, value in zip(where, values):
            filled[k] = value
        results = []
        for x, args, kwargs in pytree.tree_unflatten(filled, spec):
            results += [
                t for t in pytree.tree_leaves(op.op(x, *args, **kwargs)) if isinstance(t, torch.Tensor)
            ]
        return tuple(results)

    def run_grad(*values):
        values = [v.detach().requires_grad_(v.is_floating_point()) for v in values]
        results = run(*values)
        total = [r for r in results if r.requires_grad]
        wanted = [v for v in values if v.requires_grad]
        grads = torch.autograd.grad(total, wanted, [torch.ones_like(r) for r in total], allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return (run_grad if grad else run), tensors


def same_strides(tensor):
    """A copy with the same strides, unlike ``clone`` of a sliced tensor."""
    if tensor.layout is not torch.strided:
        return tensor.clone()
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def tolerance(dtype):
    return {
        torch.bfloat16: 3e-2,
        torch.float16: 4e-3,
        torch.float32: 2e-5,
        torch.float64: 1e-9,
        torch.complex64: 2e-5,
        torch.complex128: 1e-9,
    }.get(dtype, 0)


def meaningful(tensor):
    """Strides of the dimensions that have more than one element."""
    return [step for step, n in zip(tensor.stride(), tensor.shape) if n > 1]


def compare(want, got):
    if len(want) != len(got):
        return f"{len(got)} results, not {len(want)}"
    for k, (a, b) in enumerate(zip(want, got)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k}: {b.dtype}{tuple(b.shape)}, not {a.dtype}{tuple(a.shape)}"
        if a.layout is torch.strided and a.numel() > 0 and meaningful(a) != meaningful(b):
            return f"result {k}: strides {b.stride()}, not {a.stride()} for {tuple(a.shape)}"
        tol = tolerance(a.dtype)
        try:
            torch.testing.assert_close(b, a, rtol=tol, atol=tol, equal_nan=True)
        except AssertionError as error:
            return f"result {k}: " + " ".join(str(error).split())[:150]
    return None


def run_with_threads(compiled, tensors, counts):
    """The tensors that ``compiled`` returns with the first number of threads, and what differs with another."""
    first, exact = None, ordered_alike(compiled.lowered.plan)
    for threads in counts:
        torch.set_num_threads(threads)
        torch.manual_seed(SEED)
        results = compiled(*[same_strides(t) for t in tensors])
        found = [r for r in results if isinstance(r, torch.Tensor)]
        if first is None:
            first = found
            continue
        same = exact and all(map(identical, first, found))
        if not same and (exact or compare(first, found)):
            return first, f"with {threads} threads: {compare(first, found) or 'other bits'}"
    return first, None


def ordered_alike(plan):
    """Whether sums have one order, whatever the number of threads."""
    kernels = [step.kernel for step in plan.steps if isinstance(step, KernelStep)]
    return len(kernels) == len(plan.steps) and all(strategy(k) != "whole" for k in kernels)


def identical(a, b):
    """Whether two tensors have the same bits, any NaN being like any other."""
    return (
        a.shape == b.shape
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a.nan_to_num(), b.nan_to_num())
    )


def one(op, samples, args):
    function, tensors = function_of(op, samples, args.grad)
    if function is None:
        return "skip"
    torch.manual_seed(SEED)
    try:
        want = function(*[t.clone() for t in tensors])
    except Exception:
        return "skip"
    if not want:
        return "skip"
    try:
        mode = "symbolic" if args.symbolic else "fake"
        with torch.no_grad() if not args.grad else torch.enable_grad():
            raw = make_fx(function, tracing_mode=mode)(*tensors)
        function_ = torch.func.functionalize(raw, remove="mutations")
        graph = make_fx(function_, decomposition_table=TABLE, tracing_mode=mode)(*tensors)
    except Exception as error:
        return "skip" if len(samples) == 1 else "untraceable"
    try:
        compiled = fi.compile_graph(graph, tensors, args.options)
        if defects := [f for f in compiled.lowered.plan.program.fallbacks if f.defect]:
            return f"defect: {defects[0]}"
        got, problem = run_with_threads(compiled, tensors, args.threads)
    except Exception as error:
        if args.traceback:
            print(graph.graph)
            traceback.print_exc()
        return "error: " + f"{type(error).__name__}: " + " ".join(str(error).split())[-160:]
    problem = problem or compare(want, got)
    if problem and args.traceback:
        print(graph.graph)
        print(compiled.lowered.c[compiled.lowered.c.find("min_bool(bool") + 60 :])
        print(compiled.lowered.host)
    return "differs: " + problem if problem else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--start", default="")
    parser.add_argument("--symbolic", action="store_true")
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--traceback", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--skip", type=int, default=0, help="operators at the front to leave out")
    parser.add_argument("--threads", default=str(torch.get_num_threads()))
    parser.add_argument("--grain", type=int, default=fi.InductorOptions().grain)
    parser.add_argument("--compiler")
    parser.add_argument("--dry", action="store_true", help="a few operators only")
    args = parser.parse_args()
    if args.dry:
        args.ops, args.samples = "^(add|cumsum|sum|cat)$", 2
    args.threads = [int(count) for count in args.threads.split(",")]
    args.options = fi.InductorOptions(use_cache=False, grain=args.grain, compiler=args.compiler)
    counts = {"ok": 0, "skip": 0, "bad": 0}
    start = time.time()
    for position, op in enumerate(op_db[args.skip :], args.skip):
        if time.time() - start > args.seconds:
            print(f"stopped before operator {position} of {len(op_db)}")
            break
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not re.search(args.ops, name) or name < args.start:
            continue
        for text in args.dtypes.split(","):
            dtype = getattr(torch, text)
            if not op.supports_dtype(dtype, "cpu") or (args.grad and not op.supports_autograd):
                continue
            torch.manual_seed(1)
            try:
                samples = [s for s, _ in zip(op.sample_inputs("cpu", dtype), range(args.samples))]
            except Exception:
                continue
            result = one(op, samples, args)
            if result not in (None, "skip") and len(samples) > 1:
                results = [one(op, [s], args) for s in samples]
                bad = [r for r in results if r not in (None, "skip")]
                result = bad[0] if bad else None
                if bad:
                    result = f"[{len(bad)}/{len(samples)}] {bad[0]}"
            key = "ok" if result is None else "skip" if result == "skip" else "bad"
            counts[key] += 1
            if key == "bad":
                print(f"{name} {text}: {result}", flush=True)
    print(counts, f"{time.time() - start:.0f} s")
    return 1 if counts["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
