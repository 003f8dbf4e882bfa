"""Which ATen operators raise for the data of their tensors alone: the table of ``fxstack_interchange.torch_facts.raising``,
asked of eager.

    python packages/capture/tests/sweeps/raising.py [--ops PATTERN] [--samples 4] [--write FILE] [--dry]

Every operator that torch's database reaches is called as there, and again with the elements of one tensor replaced (by
negative, large, zero, infinite numbers, NaN). Where only the latter raises, the dtype of that tensor is noted. What is
found and not in the table is a difference; ``--write`` writes the table instead. Calls are made in processes of their own:
some kernels do not look at their indices.
"""

import argparse
import multiprocessing
import re
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from fxstack_interchange.torch_facts.raising import DATA_CHECKS, kind_of_dtype

warnings.filterwarnings("ignore")
common_utils.extract_test_fn = lambda: None
DTYPES = (torch.float32, torch.int64, torch.bool)
FILLS = {
    "int": (0, -100, 1 << 20, -1),
    "float": (float("nan"), float("inf"), -1.0, 0.0, 2.0),
    "bool": (True, False),
}
MOST = 4096
"""Elements of a call that is tried."""
ONES = torch.ones(4, dtype=torch.int64)
LOGITS = torch.randn(6, 2, 5).log_softmax(-1)
BESIDE = {
    "division": lambda: [
        torch.fmod(ONES, ONES),
        torch.div(ONES, ONES, rounding_mode="trunc"),
        torch.div(ONES, ONES, rounding_mode="floor"),
        torch.remainder(ONES, ONES),
        torch.gcd(ONES, ONES),
        torch.lcm(ONES, ONES),
    ],
    "histograms": lambda: [torch.histc(torch.rand(4)), torch.bincount(ONES, torch.rand(4))],
    "distributions": lambda: [
        torch.poisson(torch.rand(3)),
        torch.binomial(torch.rand(3) + 3, torch.rand(3)),
        torch._sample_dirichlet(torch.rand(3)),
        torch.normal(torch.rand(3), torch.rand(3)),
        torch.normal(1.0, torch.rand(3)),
        torch._standard_gamma(torch.rand(3)),
    ],
    "bags": lambda: [
        torch.nn.functional.embedding_bag(ONES, torch.rand(5, 3), ONES[:1] * 0, mode=mode)
        for mode in ("sum", "mean", "max")
    ],
    "ctc": lambda: torch.nn.functional.ctc_loss(LOGITS, ONES.view(2, 2), ONES[:2] * 6, ONES[:2] * 2),
    "sequences": lambda: torch._pack_padded_sequence(torch.rand(4, 2, 3), ONES[:2] * 4, False),
    "masked": lambda: torch.masked_scatter(torch.rand(3), torch.rand(3) > 2, torch.rand(1)),
    "pivots": lambda: torch.lu_unpack(torch.eye(3), torch.arange(1, 4, dtype=torch.int32)),
    "cholesky": lambda: [
        torch.cholesky_inverse(torch.eye(3)),
        torch.linalg.cholesky(torch.eye(3)),
        torch.linalg.inv(torch.eye(3)),
        torch.linalg.solve(torch.eye(3), torch.eye(3)),
        torch.linalg.eigvalsh(torch.eye(3)),
        torch.linalg.eigvals(torch.eye(3)),
        torch.linalg.svdvals(torch.eye(3)),
        torch.linalg.ldl_factor(torch.eye(3)),
        torch.linalg.matrix_exp(torch.eye(3)),
    ],
}
"""What the database lacks, or has only with arguments for which nothing can be found."""


class Calls(TorchDispatchMode):
    """The calls of ATen operators inside, by overload."""

    def __init__(self, most):
        super().__init__()
        self.found, self.most = {}, most

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = self.found.setdefault(func, [])
        flat, spec = tree_flatten((args, kwargs or {}))
        tensors = [x for x in flat if isinstance(x, torch.Tensor)]
        small = tensors and all(
            x.layout is torch.strided and x.numel() <= MOST and not x.is_quantized for x in tensors
        )
        if small and len(known) < self.most:
            known.append(([copied(x) for x in flat], spec))
        return func(*args, **(kwargs or {}))


def copied(x):
    return x.detach().clone() if isinstance(x, torch.Tensor) else x


def calls_of(op, args):
    """What is called below ``op`` on the samples of the database."""
    calls = Calls(args.samples)
    if callable(op) and not hasattr(op, "sample_inputs"):
        with calls:
            op()
        return calls.found
    for dtype in DTYPES:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        samples = op.sample_inputs("cpu", dtype)
        for _, sample in zip(range(4 * args.samples), samples):
            try:
                with calls:
                    op.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue
    return calls.found


def attempt(func, flat, spec):
    """None, or what the call raises."""
    positional, keywords = tree_unflatten([copied(x) for x in flat], spec)
    try:
        func(*positional, **keywords)
    except Exception as error:
        return error
    return None


def variants(tensor, kind):
    for fill in FILLS[kind]:
        yield torch.full_like(tensor, fill)
        if tensor.numel() > 1:
            changed = tensor.contiguous().clone()
            changed.view(-1)[-1] = fill
            yield changed


def raising_kinds(func, calls):
    """The kinds of dtypes of the tensors whose elements ``func`` refuses."""
    found = set()
    for flat, spec in calls:
        if attempt(func, flat, spec) is not None:
            continue
        for place, tensor in enumerate(flat):
            kind = kind_of_dtype(tensor.dtype) if isinstance(tensor, torch.Tensor) else None
            if kind not in FILLS or kind in found or not tensor.numel():
                continue
            tried = (
                attempt(func, [*flat[:place], changed, *flat[place + 1 :]], spec)
                for changed in variants(tensor, kind)
            )
            if any(error is not None for error in tried):
                found.add(kind)
    return found


def probe(op, args, results):
    """Run in a process of its own; each operator's finding is sent as soon as it is made."""
    for func, calls in calls_of(op, args).items():
        if func.namespace == "aten" and not func._schema.is_mutable:
            found = raising_kinds(func, calls)
            if found:
                results.send((f"{func._opname}", sorted(found)))
    results.send(None)


def isolated(op, args):
    receiver, sender = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=probe, args=(op, args, sender))
    process.start()
    sender.close()
    try:
        while receiver.poll(60):
            found = receiver.recv()
            if found is None:
                break
            yield found
    except EOFError:
        pass
    process.kill()
    process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--write", default="")
    parser.add_argument("--dry", action="store_true", help="a few operators")
    args = parser.parse_args()
    pattern = "^(gather|take|cross|remainder)$" if args.dry else args.ops
    torch.set_num_threads(1)
    start, chosen, found = time.time(), [op for op in op_db if re.search(pattern, op.name)], {}
    chosen += [calls for name, calls in BESIDE.items() if re.search(pattern, name)]
    for op in chosen:
        for name, kinds in isolated(op, args):
            found.setdefault(name, set()).update(kinds)
    missing = {
        name: kinds - DATA_CHECKS.get(name, frozenset())
        for name, kinds in sorted(found.items())
        if kinds - DATA_CHECKS.get(name, frozenset())
    }
    if args.write:
        lines = [f"{name} {' '.join(sorted(found[name]))}\n" for name in sorted(found)]
        Path(args.write).write_text("".join(lines))
        return 0
    for name, kinds in missing.items():
        print(f"{name} raises for {', '.join(sorted(kinds))} tensors: not in the table")
    print(
        f"{len(chosen)} operators of the database, {len(found)} of ATen's raise on data, "
        f"{len(missing)} differences, {time.time() - start:.0f} s"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
