"""Eager runs whose operators round a little otherwise: what differs between them is decided by rounding alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .observing import Comparison, Difference, Observed, Seen

TRIALS = 6
CANCELLING = ("layer_norm", "group_norm", "batch_norm", "softmax", "var", "std", "logsumexp")
"""Parts of names of functional operators inside of which large numbers cancel: their arguments are perturbed, too."""


class Noise(TorchDispatchMode):
    """Multiplies what operators compute by one plus up to ``scale`` units in the last place."""

    def __init__(self, seed: int, scale: float) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.scale = scale

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(part in func.__name__ for part in CANCELLING):
            args = [self.near(x) if isinstance(x, torch.Tensor) else x for x in args]
        result = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        results = result if isinstance(result, (list, tuple)) else [result]
        if func.namespace == "aten" and len(returned) in (1, len(results)):
            for at, t in enumerate(results):
                alias = returned[min(at, len(returned) - 1)].alias_info
                if isinstance(t, torch.Tensor) and (alias is None or alias.is_write):
                    self.perturb(t)
        return result

    def near(self, t: torch.Tensor) -> torch.Tensor:
        if not t.is_floating_point() or t.layout is not torch.strided:
            return t
        copy = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)
        self.perturb(copy)
        return copy

    def perturb(self, t: torch.Tensor) -> None:
        if not t.is_floating_point() or not t.numel() or t.layout is not torch.strided:
            return
        if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)):
            return
        eps = torch.finfo(t.dtype).eps * self.scale
        off = torch.rand(t.shape, generator=self.generator, dtype=torch.float64) - 0.5
        changed = t.double() * (1 + eps * off)
        rounded = changed.to(t.dtype)
        if t.dtype in (torch.bfloat16, torch.float16):
            # Half of a unit either way may round to where it was: take the neighbour in a third of the elements.
            rounded = torch.where(off.abs() > 0.33, (t.double() * (1 + 2 * eps * off.sign())).to(t.dtype), t)
        t.copy_(rounded)


def unexplained(
    found: list[Difference], wanted: Observed, trials: list[Observed], coarsest: float
) -> list[Difference]:
    """The differences that no noisy run comes near."""
    left = []
    shaky = [{d.path for d in Comparison(coarsest)(trial, wanted)} for trial in trials]
    structural = any(structure(trial) != structure(wanted) for trial in trials)
    for difference in found:
        if difference.got is None:
            if not structural and not any(difference.path in paths for paths in shaky):
                left.append(difference)
            continue
        if not spread_covers(difference, trials):
            left.append(difference)
    return left


def farther(found: list[Difference], exact: Observed) -> list[Difference]:
    """The differences in which the compiled program is farther from a run in double precision than eager is.

    A gradient that cancels to nothing has digits of rounding alone: two orders of the same sum share none of them.
    """
    return [d for d in found if d.got is None or not as_near(d, at(exact, d.path))]


def as_near(difference: Difference, exact: Any) -> bool:
    got, want = difference.got, difference.want
    assert got is not None
    assert want is not None
    if exact is None or exact.shape != want.shape or not (exact.is_floating_point() or exact.is_complex()):
        return False
    ours, eager = ((t.to(exact.dtype) - exact).abs() for t in (got, want))
    if not bool(ours.isfinite().all() & eager.isfinite().all()):
        return False
    return bool(ours.max() <= 4 * eager.max())


def structure(observed: Observed) -> list[str]:
    return [shape_of(record) for record in observed.records]


def shape_of(value: Any) -> str:
    if isinstance(value, Seen):
        return str(value.facts)
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(map(shape_of, value)) + ")"
    return "number" if isinstance(value, float) else repr(value)


def at(observed: Observed, path: str) -> Any:
    name, *steps = path.split(".")
    value: Any = dict(observed.records).get(name)
    for step in steps:
        if not isinstance(value, (list, tuple)) or int(step) >= len(value):
            return None
        value = value[int(step)]
    if isinstance(value, Seen):
        return value.value
    return torch.tensor(value).double() if isinstance(value, float) else None


def spread_covers(difference: Difference, trials: list[Observed]) -> bool:
    """Whether each element differs by no more than a few times what it does between noisy runs."""
    got, want = difference.got, difference.want
    assert got is not None
    assert want is not None
    others = [at(trial, difference.path) for trial in trials]
    if any(o is None or o.shape != want.shape or o.dtype != want.dtype for o in others):
        return True
    if not want.is_floating_point() and not want.is_complex():
        changes = torch.stack([o != want for o in others]).any(0)
        return bool(((got == want) | changes).all())
    wide = torch.complex128 if want.is_complex() else torch.float64
    exact = want.to(wide)
    spread = torch.stack([(o.to(wide) - exact).abs() for o in others]).amax(0)
    same = (got == want) | (got.isnan() & want.isnan())
    strange = torch.stack([~o.isfinite() | ~want.isfinite() for o in others]).any(0)
    near = (got.to(wide) - exact).abs() <= 5 * spread.nan_to_num(float("inf"))
    return bool((same | near | (strange & ~want.isfinite() & ~same & (spread != 0))).all())
