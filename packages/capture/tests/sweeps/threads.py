# ruff: noqa: INP001
"""Many threads that compile and call the same functions at once, compared with plain Python.

    python packages/capture/tests/sweeps/threads.py SECONDS [resets] [stances]

``resets``: another thread forgets all that is compiled every 25 ms; ``stances``: another one changes its stance.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fxstack_capture as fx

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 8


class Branching(torch.nn.Module):
    """Its branch depends on data, so its graph breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.linear(x) * scale if x.sum() > 0 else self.linear(x) - scale


def over_dict(x: torch.Tensor, factors: dict[str, int], whole: bool) -> torch.Tensor:  # noqa: FBT001
    scaled = {name: x * factor for name, factor in factors.items()}
    return sum(scaled.values()) if whole else torch.cat(list(scaled.values()))


def generated(x: torch.Tensor, count: int) -> torch.Tensor:
    return torch.stack([x + i for i in (k for k in range(count))])


def appending(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    seen.append(len(seen))
    print(end="")
    return x * 2 + len(seen)


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fx.optimize(lambda graph_module, _: graph_module.forward)(fn)


MODULE = Branching()
SHARED = {fn: compiled(fn) for fn in (MODULE, over_dict, generated, appending)}


def arguments(draw: random.Random, fn: Callable[..., Any]) -> tuple[Any, ...]:
    """New arguments, but for the tensor."""
    if fn is MODULE:
        return (draw.choice([2, 3, 1.5]),)
    if fn is over_dict:
        return {f"k{i}": i for i in range(draw.randint(1, 3))}, draw.random() < 0.5
    if fn is appending:
        return ([0] * draw.randint(0, 2),)
    return (draw.randint(1, 4),)


class Stress:
    """One run; ``calls`` and ``wrong`` are what came of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong: list[str] = []
        self.done = threading.Event()

    def work(self, seed: int) -> None:
        draw = random.Random(seed)
        torch.set_grad_enabled(draw.random() < 0.5)

        def own(x: torch.Tensor, k: int) -> torch.Tensor:
            return x * k + seed

        functions = {**SHARED, own: compiled(own)}
        while not self.done.is_set():
            fn = draw.choice(list(functions))
            dtype = torch.float32 if fn is MODULE else draw.choice([torch.float32, torch.float64])
            x, state = torch.randn(draw.randint(1, 6), 4, dtype=dtype), draw.getstate()
            results = []
            for version in (fn, functions[fn]):
                draw.setstate(state)
                given = arguments(draw, fn)
                result = version(x, *given)
                results.append((result.dtype, result.requires_grad, result.tolist(), given))
            self.calls += 1
            if results[0] != results[1]:
                self.wrong.append(f"{seed} {fn}: {results}")

    def reset(self, _seed: int) -> None:
        while not self.done.wait(0.025):
            fx.reset()

    def change_stance(self, seed: int) -> None:
        draw, x = random.Random(seed), torch.ones(2, 4)
        while not self.done.wait(0.01):
            with fx.set_stance(draw.choice(["default", "force_eager", "eager_on_recompile"])):
                if not torch.equal(SHARED[generated](x, 2), generated(x, 2)):
                    self.wrong.append("under a stance")

    def guarded(self, job: Callable[[int], None], seed: int) -> None:
        try:
            job(seed)
        except BaseException:
            self.wrong.append(traceback.format_exc())

    def run(self, seconds: float, beside: list[str]) -> None:
        jobs = [self.work] * THREADS
        jobs += [self.reset] * ("resets" in beside) + [self.change_stance] * ("stances" in beside)
        threads = [threading.Thread(target=self.guarded, args=(job, seed)) for seed, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.done.set()
        for thread in threads:
            thread.join()


def main(seconds: str, *beside: str) -> None:
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-6)
    torch.set_num_threads(1)
    # torch 2.11's build for CUDA dies without a GPU where a thread is the first to make a mode of fake tensors.
    with FakeTensorMode():
        pass
    stress = Stress()
    stress.run(float(seconds), list(beside))
    print(*stress.wrong[:5], sep="\n")
    print(f"{stress.calls} calls, {len(stress.wrong)} wrong")
    sys.exit(bool(stress.wrong))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["1"]
    main(*sys.argv[1:])
