"""Operators that call functions (branches, loops), run on compiled functions: what ``torch.ops.higher_order`` computes.

Host programs in Python call these functions in place of torch's operators, which run the functions operator by
operator. The compiled functions return tuples of new tensors; a result that is an operand itself (a carry that the body
returns unchanged) is copied where eager copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

Function = Callable[..., Any]
"""A compiled function. It returns a tuple, or the value of a graph that returns one value."""
Values = Any
"""Tensors and numbers in a tuple or list: operands, or the results of a function."""


def cond(predicate: Any, true: Function, false: Function, operands: Values) -> Values:
    """Run one of two branches."""
    return true(*operands) if predicate else false(*operands)


def switch(index: Any, branches: Sequence[Function], operands: Values) -> Values:
    """Run the branch with the number ``index``.

    Raises:
        AssertionError: there is no such branch, as in eager.
    """
    number = int(index)
    if not 0 <= number < len(branches):
        raise AssertionError(f"switch index {number} out of range for {len(branches)} branches")
    return branches[number](*operands)


def while_loop(holds: Function, body: Function, carries: Values, additional: Values = ()) -> Values:
    """Run ``body`` on its results as long as ``holds`` is true; without an iteration, return copies."""
    if not _is_true(holds(*carries, *additional)):
        return tuple(map(_copy, carries))
    values = tuple(carries)
    while True:
        values = body(*values, *additional)
        if not _is_true(holds(*values, *additional)):
            return values


def while_loop_stack_output(
    holds: Function, body: Function, carries: Values, additional: Values = ()
) -> Values:
    """Run a loop as ``while_loop`` does, and return the carries of all iterations, stacked."""
    values, steps = tuple(carries), []
    while _is_true(holds(*values, *additional)):
        values = body(*values, *additional)
        steps.append(values)
    if not steps:
        return tuple(v.unsqueeze(0).clone() if isinstance(v, torch.Tensor) else v for v in values)
    return tuple(map(torch.stack, zip(*steps, strict=True)))


def scan(body: Function, init: Values, xs: Values, additional: Values = ()) -> Values:
    """Run ``body`` on the carries and each slice of ``xs``; return the last carries and the stacked results.

    Without an iteration, torch runs ``body`` once on slices of garbage for the shapes of the results.
    """
    if not xs:
        return tuple(init)
    carries, count, length = tuple(init), len(init), xs[0].shape[0]
    stacked: list[Any] = []
    for position in range(length):
        values = body(*carries, *(x.select(0, position) for x in xs), *additional)
        carries = tuple(values[:count])
        if not position:
            stacked = [_stack_of(value, length) for value in values[count:]]
        for place, value in zip(stacked, values[count:], strict=True):
            if place is not None:
                place[position] = value
    if not length:
        values = body(*carries, *(x.new_zeros(x.shape[1:]) for x in xs), *additional)
        return (*map(_copy, carries), *(_stack_of(value, 0) for value in values[count:]))
    return (*carries, *stacked)


def map_impl(body: Function, xs: Values, additional: Values = ()) -> Values:
    """Run ``body`` on each slice of ``xs``, and stack its results."""
    length = xs[0].shape[0]
    stacked: list[Any] = []
    for position in range(length):
        values = body(*(x.select(0, position) for x in xs), *additional)
        if not position:
            stacked = [_stack_of(value, length) for value in values]
        for place, value in zip(stacked, values, strict=True):
            if place is not None:
                place[position] = value
    assert length, "a map over no slices"
    return tuple(stacked)


def invoke_subgraph(body: Function, _identifier: Any, *operands: Any) -> Values:
    """Call ``body``."""
    return body(*operands)


def wrap(body: Function, *operands: Any) -> Values:
    """Call ``body``."""
    return body(*operands)


def strict_mode(body: Function, operands: Values) -> Values:
    """Call ``body``."""
    return body(*operands)


def hints_wrapper(body: Function, operands: Values, keywords: Mapping[str, Any], _hints: Any) -> Values:
    """Call ``body``; hints are for compilers."""
    return body(*operands, **keywords)


def _stack_of(value: Any, length: int) -> torch.Tensor | None:
    """Return memory for ``length`` results like ``value``, contiguous as in eager; None for a result that is None."""
    if not isinstance(value, torch.Tensor):
        return None
    return torch.empty((length, *value.shape), dtype=value.dtype, device=value.device)


def _is_true(condition: Any) -> bool:
    """Return the truth of a condition's result, which may be in a tuple."""
    return bool(condition[0] if isinstance(condition, tuple) else condition)


def _copy(value: Any) -> Any:
    """Return a copy of a tensor, and another value itself."""
    return value.clone() if isinstance(value, torch.Tensor) else value


OPERATORS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            cond,
            hints_wrapper,
            invoke_subgraph,
            map_impl,
            scan,
            strict_mode,
            switch,
            while_loop,
            while_loop_stack_output,
            wrap,
        )
    }
)
"""The functions by the name of torch's operator."""
