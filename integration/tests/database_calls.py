"""Calls of torch's databases of operators and modules, run in eager and compiled, with all that a user can compare.

A ``Program`` is a function of tensors with one or more sets of inputs. ``difference`` runs it on all sets.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.testing._internal.common_methods_invocations as invocations
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

import fxstack

# Who asks for samples is found by reading the source of the whole stack.
common_utils.extract_test_fn = lambda: None
# The random operators of the database set the seed inside, which no graph records.
invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

UNDEFINED = ("empty", "jiterator", "broadcast_shapes", "uninitialized")
"""Operators whose values are whatever is in memory, or that take no tensors."""
OPERATORS = {
    f"{op.name} {op.variant_test_name}".strip(): op
    for op in op_db
    if not any(word in op.name for word in UNDEFINED)
}
MODULES = {f"{info.name}": info for info in module_db}
IN_EAGER = "runs in eager:"
"""How ``difference`` begins for a program whose graph was refused: its results are eager's."""
FORMS = ("function", "method", "in place", "out")

Function = Callable[..., Any]
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Program:
    """``build()`` gives a function of tensors, and the tensors of its own that it reads and changes."""

    build: Callable[[], tuple[Function, Tensors]]
    inputs: tuple[Tensors, ...]


def operator_programs(
    name: str, form: str, dtype: torch.dtype, count: int, *, trains: bool
) -> Iterator[Program]:
    """The first ``count`` samples of an operator that has ``form``. With ``out=`` nothing trains."""
    op = OPERATORS[name]
    call = {"method": op.method_variant, "in place": op.inplace_variant}.get(form, op.op)
    if call is None or (form == "out" and not op.supports_out) or not op.supports_dtype(dtype, "cpu"):
        return
    trains = trains and form != "out" and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=trains), count):
        if form == "in place" and sample.broadcasts_input:
            continue
        function, tensors = _of_tensors(call, sample, form)
        if form == "out":
            try:
                outs = [
                    t for t in pytree.tree_leaves(function(*tensors, None)) if isinstance(t, torch.Tensor)
                ]
            except Exception:  # eager refuses it
                continue
            tensors = [*tensors, *map(torch.zeros_like, outs)]
        yield Program(lambda function=function: (function, []), (tensors,))


def _of_tensors(call: Function, sample: Any, form: str) -> tuple[Function, Tensors]:
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*given: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        if form == "in place":
            args = (args[0].clone(), *args[1:])
        outs = given[len(places) :]
        if outs and outs[0] is not None:
            kwargs = {**kwargs, "out": outs[0] if len(outs) == 1 else outs}
        return sample.output_process_fn_grad(call(*args, **kwargs))

    return function, [leaves[i].detach().requires_grad_(leaves[i].requires_grad) for i in places]


def module_programs(name: str, count: int, *, training: bool = True) -> Iterator[Program]:
    """The first ``count`` samples of a module."""
    info = MODULES[name]
    torch.manual_seed(0)
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )
    for sample in itertools.islice(samples, count):
        torch.manual_seed(1)
        made, call = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs).train(training)
        leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def build(module: Any = module, leaves: Any = leaves, spec: Any = spec, places: Any = places) -> Any:
            own = copy.deepcopy(module)

            def function(*given: torch.Tensor) -> Any:
                filled = list(leaves)
                for place, tensor in zip(places, given):
                    filled[place] = tensor
                args, kwargs = pytree.tree_unflatten(filled, spec)
                return own(*args, **kwargs)

            return function, [*own.parameters(), *own.buffers()]

        yield Program(build, ([leaves[i].detach().requires_grad_(leaves[i].requires_grad) for i in places],))


@dataclass(frozen=True)
class Outcome:
    """What one call shows."""

    raised: str | None
    tensors: Sequence[torch.Tensor | None] = ()
    random_state: torch.Tensor | None = None


def outcome(function: Function, own: Tensors, inputs: Tensors, around: Function) -> Outcome:
    """Call ``function`` within ``around()``, and run the backward of all results outside."""
    given = [same_layout(t) for t in inputs]
    for tensor in own:
        tensor.grad = None
    torch.manual_seed(5)
    try:
        with around():
            made = function(*given)
        results = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
        roots = [t for t in results if t.requires_grad and t.grad_fn is not None]
        shown = [t.detach().clone() for t in (*results, *given, *own)]
        if roots:
            torch.autograd.backward(
                roots, [torch.cos(torch.arange(t.numel())).view(t.shape).to(t.dtype) for t in roots]
            )
    except Exception as error:  # what is raised is compared
        return Outcome(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return Outcome(None, [*shown, *(t.grad for t in (*given, *own))], torch.get_rng_state())


def same_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf with the values and strides of ``tensor``."""
    copied = tensor.detach().clone()
    if tensor.layout is torch.strided and copied.stride() != tensor.stride() and 0 not in tensor.stride():
        copied = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor.detach())
    return copied.requires_grad_(tensor.requires_grad)


def difference(
    program: Program,
    tolerance: Callable[[torch.Tensor], float],
    around: Function = nullcontext,
    **options: Any,
) -> str | None:
    """What differs between eager and compiled, None if nothing does or eager raises at the first set of inputs."""
    plain, own = program.build()
    function, compiled_own = program.build()
    fxstack.reset()
    compiled = fxstack.compile(function, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, inputs in enumerate(program.inputs):
            expected = outcome(plain, own, inputs, around)
            if expected.raised and not number:
                return None
            found = _unlike(outcome(compiled, compiled_own, inputs, around), expected, tolerance)
            if found is not None:
                return f"call {number}: {found}"
    texts = [str(warning.message) for warning in caught]
    reasons = [text.partition("\n")[0][:160] for text in texts if "runs in eager torch" in text]
    return f"{IN_EAGER} {reasons[0]}" if reasons else None


def _unlike(actual: Outcome, expected: Outcome, tolerance: Callable[[torch.Tensor], float]) -> str | None:
    if actual.raised or expected.raised:
        return None if actual.raised == expected.raised else f"{actual.raised}, eager: {expected.raised}"
    if not torch.equal(actual.random_state, expected.random_state):
        return "the generator's state"
    if len(actual.tensors) != len(expected.tensors):
        return f"{len(actual.tensors)} tensors, eager: {len(expected.tensors)}"
    for place, (got, wanted) in enumerate(zip(actual.tensors, expected.tensors)):
        found = _unlike_tensors(got, wanted, tolerance)
        if found is not None:
            return f"tensor {place} of {len(expected.tensors)}: {found}"
    return None


def _unlike_tensors(
    got: torch.Tensor | None, wanted: torch.Tensor | None, tolerance: Callable[[torch.Tensor], float]
) -> str | None:
    if got is None or wanted is None:
        return None if got is wanted else f"{got}, eager: {wanted}"
    if (got.dtype, got.shape, got.layout) != (wanted.dtype, wanted.shape, wanted.layout):
        return f"{got.dtype} {tuple(got.shape)}, eager: {wanted.dtype} {tuple(wanted.shape)}"
    tol = tolerance(wanted)
    try:
        torch.testing.assert_close(got, wanted, rtol=tol, atol=tol, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:160]
    return None
