"""Functions of operators under ``vmap``: which values have a batch, and the functions that take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from fxstack_capture.torch_side.higher_order.nested.differentiation import Function, as_tuple
from fxstack_capture.torch_side.higher_order.nested.rows import VmapInfo, where_of_examples


@runtime_checkable
class KnowsBatches(Protocol):
    """A function that can say which of its results depend on which arguments."""

    def batched_results(self, has_batch: Sequence[bool]) -> list[bool] | None:
        """Return which results have a batch, from the arguments that have one; ``None`` if it is unknown."""
        ...


@dataclass(frozen=True, eq=False)
class Mapped:
    """``function`` mapped over the dimensions ``dims`` of its arguments.

    The results in ``has_batch`` get dimension 0; ``None`` means all of them.
    """

    info: VmapInfo
    function: Function
    dims: Sequence[int | None]
    has_batch: Sequence[bool] | None = None

    def __call__(self, *args: torch.Tensor) -> tuple[Any, ...]:
        function, size = as_tuple(self.function), self.info.batch_size
        if all(dim is None for dim in self.dims):
            results: tuple[Any, ...] = function(*args)
            flags = self.has_batch or [True] * len(results)
            return tuple(
                x.expand(size, *x.shape) if flag else x for x, flag in zip(results, flags, strict=True)
            )
        flags = [True] if self.has_batch is None else self.has_batch
        out_dims = tuple(0 if flag else None for flag in flags)
        mapped = torch.vmap(
            function,
            in_dims=tuple(self.dims),
            out_dims=0 if self.has_batch is None else out_dims,
            randomness=self.info.randomness,
        )
        found: tuple[Any, ...] = mapped(*args)
        return found

    def batched_results(self, has_batch: Sequence[bool]) -> list[bool] | None:
        """Return which results have the batch of a further ``vmap``, from the arguments that have it."""
        return results_with_batch(self.info, self.function, has_batch)


@dataclass(frozen=True, eq=False)
class CountedTest:
    """The condition of a loop that counts its iterations: the first argument is the count."""

    function: Function

    def __call__(self, _count: torch.Tensor, *values: torch.Tensor) -> Any:
        return self.function(*values)

    def batched_results(self, has_batch: Sequence[bool]) -> list[bool] | None:
        """Return whether the condition has a batch."""
        function = self.function
        return function.batched_results(has_batch[1:]) if isinstance(function, KnowsBatches) else None


@dataclass(frozen=True, eq=False)
class CountedBody:
    """The body of a loop that counts its iterations: the first argument and result are the count."""

    function: Function

    def __call__(self, count: torch.Tensor, *values: torch.Tensor) -> tuple[Any, ...]:
        return (count + 1, *self.function(*values))

    def batched_results(self, has_batch: Sequence[bool]) -> list[bool] | None:
        """Return which results have a batch. The count has none."""
        function = self.function
        found = function.batched_results(has_batch[1:]) if isinstance(function, KnowsBatches) else None
        return None if found is None else [has_batch[0], *found]


def results_with_batch(info: VmapInfo, function: Function, has_batch: Sequence[bool]) -> list[bool] | None:
    """Return which results may have a batch, from the arguments that have one; ``None`` if it is unknown."""
    if not isinstance(function, KnowsBatches) or info.randomness == "different":
        return None
    return function.batched_results(has_batch)


def carried_with_batch(
    info: VmapInfo, functions: Sequence[Function], count: int, has_batch: Sequence[bool]
) -> list[bool] | None:
    """Return which carried values of a loop have a batch in some iteration; ``None`` if it is unknown.

    ``functions``: the condition, if there is one, and the body. A number that the loop counts thus stays a number.
    """
    *tests, body = functions
    carried, others = list(has_batch[:count]), has_batch[count:]
    while True:
        found = results_with_batch(info, body, [*carried, *others])
        if found is None:
            return None
        after = [one or other for one, other in zip(carried, found, strict=False)]
        if after == carried:
            break
        carried = after
    for test in tests:
        if results_with_batch(info, test, [*carried, *others]) != [False]:
            return None
    return carried


def by_example(
    info: VmapInfo, functions: tuple[Function, ...], dims: Sequence[int | None]
) -> tuple[Function, ...]:
    """Return the functions of a mapped ``while_loop`` whose condition differs between examples."""
    test, body = (Mapped(info, as_tuple(function), dims) for function in functions)

    def goes_on(*values: torch.Tensor) -> torch.Tensor:
        return test(*values)[0].any()

    def step(*values: torch.Tensor) -> tuple[Any, ...]:
        (truth,) = test(*values)
        return tuple(
            where_of_examples(truth, new, old) for new, old in zip(body(*values), values, strict=False)
        )

    return goes_on, step
