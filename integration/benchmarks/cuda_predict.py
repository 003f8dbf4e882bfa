"""Predicts how long a GPU computes a launch: ``seconds(work, constants)``, with constants fitted to measured times.

A kernel takes a fixed time, and then the longest of three: its bytes at the memory's rate, which is lower for narrow accesses
and for grids that do not fill the GPU; the bytes that its programs ask of the caches; and its operations at the rate of
products, which is lower for few tiles. The constants are fitted, by least squares of logarithms, to the times of an H100 in
``cuda_measured.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuda_work import Work

PROCESSORS = 132
THREADS = 2048
"""Of a processor, at the same time."""
SHARE = 3.0
"""How much of the memory's rate one processor can have, in parts of its even share."""
PRIOR = 0.1
"""How much a constant that no measured time determines is held at what is known of the GPU."""
FLOAT32 = 1 / 15
"""The rate of products in float32, without TensorFloat-32, beside that in bfloat16."""


@dataclass(frozen=True)
class Constants:
    """``fixed``: seconds of a kernel that does nothing; ``memory``, ``caches``: bytes a second; ``products``, ``attention``:
    operations a second; ``thread``: bytes a second of one thread with accesses of 16 bytes. ``narrow``, ``tiles``: exponents.
    """

    fixed: float = 1.5e-6
    memory: float = 2.9e12
    caches: float = 5.0e12
    thread: float = 1.0e8
    narrow: float = 0.45
    products: float = 7.5e14
    attention: float = 5.0e14
    tiles: float = 0.6


H100 = Constants()


def h200(constants: Constants) -> Constants:
    """The constants of an H200: the same processors, and a memory of 4.8 in place of 3.35 TB/s."""
    return replace(constants, memory=constants.memory * 4.8 / 3.35)


def seconds(work: Work, c: Constants) -> float:
    narrow = (min(work.width, 16.0) / 16.0) ** c.narrow
    resident = min(work.programs * work.threads, PROCESSORS * THREADS)
    alone = c.memory * min(1.0, work.programs * SHARE / PROCESSORS)
    library = work.kind == "product" and not work.own
    rate = c.memory if library else min(alone, resident * c.thread) * narrow
    times = [work.moved / rate, work.touched / (c.caches * narrow)]
    if work.operations:
        full = min(1.0, work.tiles / PROCESSORS) ** c.tiles
        times.append(
            work.operations
            / ((c.attention if work.attention else c.products) * full * (1.0 if work.half else FLOAT32))
        )
    return c.fixed + max(times)


def fitted(cases: Sequence[tuple[Sequence[Work], float]], start: Constants = H100) -> Constants:
    """The constants that bring the sums of the works' seconds next to the measured seconds: a damped Gauss-Newton method."""
    names = [f.name for f in fields(Constants)]
    known = point = np.log([getattr(start, n) for n in names])

    def constants(p: np.ndarray) -> Constants:
        return Constants(**dict(zip(names, map(float, np.exp(p)), strict=True)))

    def residuals(p: np.ndarray) -> np.ndarray:
        return np.array([*errors(cases, constants(p)), *(PRIOR * (p - known))])

    damping, found = 1.0, residuals(point)
    for _ in range(60):
        slopes = np.stack([(residuals(point + 1e-4 * e) - found) / 1e-4 for e in np.eye(len(point))], axis=1)
        step = np.linalg.solve(slopes.T @ slopes + damping * np.eye(len(point)), -slopes.T @ found)
        tried = residuals(point + step)
        if tried @ tried < found @ found:
            point, found, damping = point + step, tried, damping / 3
        else:
            damping *= 4
    return constants(point)


def errors(cases: Sequence[tuple[Sequence[Work], float]], c: Constants) -> list[float]:
    """Logarithms of predicted over measured."""
    return [math.log(sum(seconds(w, c) for w in works) / measured) for works, measured in cases]
