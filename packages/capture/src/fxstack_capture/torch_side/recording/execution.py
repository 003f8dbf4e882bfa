"""Run an operator on fake tensors, and classify the errors.

- The program is wrong (for example shapes that do not fit): the exception is the program's own. Fake kernels
  have different texts for some errors, so the call runs again on zeros to get the exact exception.
- The result depends on data: the graph breaks.
- The operator has no fake implementation: the graph breaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.objects.instances import TORCH
from fxstack_capture.torch_compat import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    MetadataMismatchError,
    OpOverload,
    OpOverloadPacket,
    UnsupportedFakeTensorException,
    UnsupportedMutationAliasingException,
    UnsupportedOperatorException,
    tree_leaves,
    tree_map,
)
from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.operators.custom_operators import (
    custom_operator,
    describe_fake_function,
    operator_of,
)
from fxstack_interchange.torch_facts.dtypes import is_refusal

_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
_NO_FAKE = (
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
    UnsupportedMutationAliasingException,
    MetadataMismatchError,
    NotImplementedError,
)
_TO_NUMBER = torch.ops.aten._local_scalar_dense.default
UNSUPPORTED = (*_DATA_DEPENDENT, *_NO_FAKE)
"""Exceptions of operations that fakes do not support. Real tensors may support the operation."""

_MISTAKES = (AttributeError, TypeError, LookupError, AssertionError, NameError)
"""Exceptions of code with a defect. torch raises RuntimeError or ValueError for invalid arguments."""

_MAX_DRY_RUN_BYTES = 1 << 26
"""The largest tensor, in bytes, for which a failing call runs again on real zeros."""

_NOBODY = nullcontext()

# The fake result of ``one_hot`` has the layout of the argument, because other operators compute the result
# without data. Eager's result is contiguous.
_ONE_HOT = torch.nn.functional.one_hot


def name_of(fn: object) -> str:
    """Return the name of a function for the texts of graph breaks."""
    if isinstance(fn, (OpOverload, OpOverloadPacket)):
        return str(fn)
    return str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or fn)


def place_of(fn: object) -> str:
    """Return the name of a function with the file and the line of its definition, for the texts of graph breaks."""
    fn, code = program_function(fn)
    return name_of(fn) if code is None else f"{name_of(fn)} ({code.co_filename}:{code.co_firstlineno})"


def program_function(fn: object) -> tuple[Any, CodeType | None]:
    """Return the program's function that a function or wrapper of torch calls, or ``fn``, and its code."""
    while (inner := getattr(fn, "__wrapped__", None)) is not None:
        fn = inner
    held = (fn.func, *fn.args, *fn.keywords.values()) if isinstance(fn, partial) else ()
    code = getattr(fn, "__code__", None) or getattr(getattr(fn, "forward", None), "__code__", None)
    if isinstance(fn, FunctionType) and code is not None and code.co_filename.startswith(TORCH):
        held = tuple(cell.cell_contents for cell in fn.__closure__ or () if cell != CellType())
    for value in held:
        found, its_code = program_function(value) if callable(value) else (None, None)
        if its_code is not None and not its_code.co_filename.startswith(TORCH):
            return found, its_code
    return program_function(fn.func) if isinstance(fn, partial) else (fn, code)


@calls_program
def run_fake(
    mode: FakeTensorMode,
    fn: Callable[..., Any],
    args: Args,
    kwargs: Kwargs,
    listener: AbstractContextManager[object] | None = None,
) -> Any:
    """Run ``fn`` on fakes. Raise the program's exception or GraphBreak.

    ``listener`` is a dispatch mode that gets the operators of the call.
    """
    try:
        with python_dispatcher(mode), mode, _NOBODY if listener is None else listener:
            result = fn(*args, **(_with_example_rate(kwargs) if any(fn is f for f in _FUSED) else kwargs))
            demand_declared(fn, (args, kwargs), result)
            return result.contiguous() if fn is _ONE_HOT else result
    except _DATA_DEPENDENT as error:
        raise _data_break(fn, error, mode.shape_env) from error
    except _NO_FAKE as error:
        if not is_refusal(error):
            raise _unsupported_call(fn, error) from error
        exact = without_context(_exact_error(fn, args, kwargs, error), error)
    except GraphBreak:
        raise
    except Exception as error:
        exact = without_context(_exact_error(fn, args, kwargs, error), error)
    raise exact  # outside of the handlers, so that the error of the fake kernel is not the context


_FUSED = (
    torch_compat.fused_adagrad_,
    torch_compat.fused_adam_,
    torch_compat.fused_adamw_,
    torch_compat.fused_sgd_,
)


def _with_example_rate(kwargs: Kwargs) -> Kwargs:
    """Return the arguments of a fused step with the example of a symbolic learning rate.

    The operator takes a Python float, so torch would guard the value. The metadata of its tensors does not depend on the rate.
    """
    rate = kwargs.get("lr")
    if not isinstance(rate, torch.SymFloat) or rate.node.hint is None:
        return kwargs
    return {**kwargs, "lr": float(rate.node.hint)}


def python_dispatcher(mode: FakeTensorMode) -> AbstractContextManager[object]:
    """Return a context in which operators use torch's implementations in Python, if the trace has symbols."""
    # Some composite kernels accept symbolic sizes only in their Python implementation.
    return torch_compat.EnablePythonDispatcher() if mode.shape_env is not None else _NOBODY


def _data_break(fn: Callable[..., Any], error: Exception, env: ShapeEnv | None) -> GraphBreak:
    """Return the graph break for a call that reads data. The reason names an option if the option would help."""
    if getattr(fn, "__name__", None) == "__bool__":
        return graph_break(
            "data-dependent-branch", "if, while, and, or, not, assert or bool() asks whether it is true"
        )
    takes_sizes = env is not None and env.allow_dynamic_output_shape_ops
    takes_numbers = env is not None and env.allow_scalar_outputs
    reason = "data-dependent-value"
    if isinstance(error, DynamicOutputShapeException) and not takes_sizes:
        reason = "data-dependent-size"
    elif isinstance(error, DataDependentOutputException) and error.func is _TO_NUMBER and not takes_numbers:
        reason = "data-dependent-number"
    name = custom_operator(fn)
    return graph_break(
        reason, f"{describe_fake_function(name) if name else name_of(fn)} ({first_line(error)})"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error, for the text of a graph break."""
    return str(error).strip().split("\n", 1)[0]


def without_context(exact: BaseException, ours: BaseException) -> BaseException:
    """Return ``exact`` without the errors of fake kernels (``ours``) in its chain of contexts.

    The program never raised these errors.
    """
    link = exact
    while link.__context__ is not None and link.__context__ is not ours:
        link = link.__context__
    link.__context__ = None
    return exact


@calls_program
def _exact_error(fn: Callable[..., Any], args: Args, kwargs: Kwargs, error: Exception) -> BaseException:
    """Return the program's own exception for a call whose fake kernel raised ``error``, or a graph break.

    The call runs again on zeros. Random numbers of that run are given back.
    """
    refused = _is_refused_arguments(error)
    rng_state = torch.get_rng_state()
    try:
        owner = getattr(fn, "__self__", None)
        bound = isinstance(owner, FakeTensor)
        real_args, real_kwargs = tree_map(_real, ((owner, *args) if bound else args, kwargs))
        (getattr(torch.Tensor, fn.__name__) if bound else fn)(*real_args, **real_kwargs)
    except _NoDryRunError:
        if refused and any(symbolic_number(x) and x.node.hint is None for x in (*args, *kwargs.values())):
            text = f"{name_of(fn)} (a number that depends on data)"
            return graph_break("data-dependent-value", text)
        if refused:
            return error
    except Exception as exact:
        if not torch.equal(torch.get_rng_state(), rng_state):
            return graph_break("unsupported-call", f"{name_of(fn)}, which draws random numbers and raises")
        return exact
    else:
        # torch converts a number that is passed as ``out`` into a tensor. torch's fake kernels do not.
        if isinstance(error, _MISTAKES) and not isinstance(kwargs.get("out"), (int, float, complex)):
            text = f"{type(error).__name__}: {first_line(error)} (in {name_of(fn)} without data)"
            return (
                _unsupported_call(fn, error) if custom_operator(fn) else graph_break("internal-error", text)
            )
    finally:
        torch.set_rng_state(rng_state)
    return _unsupported_call(fn, error)


def _unsupported_call(fn: Callable[..., Any], error: Exception) -> GraphBreak:
    """Return the graph break for a call that fakes do not support."""
    name = custom_operator(fn)
    if name:
        text = f"{describe_fake_function(name)} raised {type(error).__name__}: {first_line(error)}"
        return graph_break("fake-function", text)
    return graph_break("unsupported-call", f"{name_of(fn)} ({first_line(error)})")


def _is_refused_arguments(error: Exception) -> bool:
    """Return whether torch's C code raised a TypeError for the types of the arguments."""
    traceback = error.__traceback__
    if not isinstance(error, TypeError) or "FakeTensor" in str(error) or traceback is None:
        return False
    return traceback.tb_next is None  # no Python frame ran below the call


class _NoDryRunError(Exception):
    """Raised if the call cannot run again on zeros: a large tensor, another device, or an unknown number."""


def _real(leaf: Any) -> Any:
    """Return zeros for a fake tensor, the present value for a symbolic number, or the leaf itself."""
    if isinstance(leaf, FakeTensor):
        return _zeros(leaf)
    if not symbolic_number(leaf):
        return leaf
    if leaf.node.hint is None:
        raise _NoDryRunError
    return leaf.node.hint


def _zeros(fake: FakeTensor) -> torch.Tensor:
    """Return a real tensor of zeros with the metadata of a fake. Raise ``_NoDryRunError`` for a large tensor."""
    size = [_real(n) for n in fake.size()]
    if fake.device.type != "cpu" or math.prod(size) * fake.element_size() > _MAX_DRY_RUN_BYTES:
        raise _NoDryRunError
    with torch.inference_mode(fake.is_inference()):
        strides = [_real(n) for n in fake.stride()]
        real = torch.empty_strided(size, strides, dtype=fake.dtype).zero_()
    real.requires_grad_(fake.requires_grad)
    if getattr(fake, "_is_param", False):
        return torch.nn.Parameter(real, fake.requires_grad)
    if fake.requires_grad and not is_leaf(fake):
        with torch.enable_grad():
            real = real.clone()
    return real


def demand_declared(fn: Callable[..., Any], arguments: object, result: object) -> None:
    """Break the graph if the result of a fake function contradicts the schema of its custom operator."""
    name = custom_operator(fn)
    operator = operator_of(fn) if name else None
    if operator is None:
        return
    returns = operator._schema.returns
    values = result if isinstance(result, (tuple, list)) and len(returns) != 1 else (result,)
    if len(values) != max(1, len(returns)):
        _refuse(name, f"{len(values)} results", f"the operator has {len(returns)}")
    used = {leaf.device.type for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)}
    for value, declared in zip(values, returns, strict=False):
        if isinstance(declared.type, torch.TensorType) and not isinstance(value, torch.Tensor):
            _refuse(name, f"{value!r}", "the operator returns a tensor")
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor):
                _demand_device(name, tensor, used)


def _demand_device(name: str, tensor: torch.Tensor, used: set[str]) -> None:
    """Break the graph if a result has data, or is on a device that the fake function cannot have meant."""
    device = tensor.device.type
    if not isinstance(tensor, FakeTensor):
        _refuse(name, "a tensor with data", "a fake function makes its results by torch's functions")
    if device in used or device == "cpu":
        return
    if device == "meta" or (device == "cuda" and not torch.cuda.is_available()):
        _refuse(name, f"a tensor on the device {tensor.device}", f"the arguments are on {', '.join(used)}")


def _refuse(name: str, returned: str, expected: str) -> None:
    """Break the graph because the fake function of operator ``name`` is wrong.

    ``returned`` and ``expected`` describe its result and the result of the schema.
    """
    raise graph_break("fake-function", f"{describe_fake_function(name)} returned {returned}, but {expected}")
