"""``torch.distributed``: properties of process groups are constants; collectives are functional ones or break.

A process group is guarded by identity. Its size, its rank and its name never change.

A collective that writes into tensors is recorded as the functional collective and a copy
(``polyfills.collectives``), if both give the same tensors: contiguous tensors without gradients, of sizes
that fit the group. Any other collective breaks the graph, and so does ``async_op=True``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.calls.polyfills import collectives
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace

_MODULE = "torch.distributed.distributed_c10d"
_METHODS = ("rank", "size", "name")
"""Methods of groups whose results never change."""
_PROPERTIES = ("group_name",)
"""Properties of groups that never change."""


@RULES.rule(f"{_MODULE}:_exception_logger.<locals>.wrapper", f"{_MODULE}:_time_logger.<locals>.wrapper")
def _collective(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call the functional collective, or break the graph at the call. Torch logs the calls of collectives.

    A break inside of a logged function would break every caller, too.
    """
    inner = vars(fn).get("__wrapped__")
    if hasattr(inner, "__deprecated__"):  # warns, and calls the function of the new name
        return trace.calls.call(inner, args, kwargs)
    is_torchs = vars(torch.distributed).get(fn.__name__) is fn
    prepare = _FUNCTIONAL.get(fn.__name__) if is_torchs else None
    if prepare is None:
        raise _refusal(fn.__name__)
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        raise _refusal(fn.__name__) from error
    bound.apply_defaults()
    bound_arguments = dict(bound.arguments)
    _demand_member(fn.__name__, bound_arguments)
    function, operands = prepare(trace, bound_arguments)
    importlib.import_module("torch.distributed._functional_collectives")
    trace.interp.call_function(function, (bound_arguments["group"], *operands), {})
    return None


def _refusal(name: str) -> GraphBreak:
    """Return the graph break for a collective that cannot be a functional one."""
    return graph_break("unsupported-call", f"torch.distributed.{name}")


def _demand_member(name: str, bound_arguments: dict[str, Any]) -> None:
    """Break the graph unless the call waits for the result, in a group of which this process is a member."""
    group = bound_arguments["group"]
    groups = torch.distributed.ProcessGroup
    is_member = group is None or (isinstance(group, groups) and torch.distributed.get_rank(group) >= 0)
    if bound_arguments["async_op"] is not False or not is_member or not torch.distributed.is_initialized():
        raise _refusal(name)


def _demand(name: str, *facts: Any) -> None:
    """Break the graph at the collective ``name`` unless all facts are true."""
    if not all(facts):
        raise _refusal(name)


def _plain(trace: Trace, *tensors: Any) -> bool:
    """Whether the collective works on these tensors as they are, and no gradient is due for them."""
    return all(
        isinstance(tensor, torch.Tensor)
        and trace.torch.python_type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and not tensor.requires_grad
        and not tensor.is_complex()
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.dtype == tensors[0].dtype
        and tensor.device == tensors[0].device
        for tensor in tensors
    )


def _size(bound_arguments: dict[str, Any]) -> int:
    """Return the number of members of the group."""
    return len(torch.distributed.get_process_group_ranks(bound_arguments["group"]))


def _is_concatenation(whole: torch.Tensor, part: torch.Tensor, size: int) -> bool:
    """Whether ``whole`` has the sizes of ``size`` parts. Backends differ in the other shapes that they accept."""
    sizes = part.shape
    return len(sizes) > 0 and whole.shape == (sizes[0] * size, *sizes[1:])


def _operation(name: str, bound_arguments: dict[str, Any]) -> str:
    """Return the name of the reduction for functional collectives, for example "sum". ``name`` is the collective."""
    op = bound_arguments["op"]
    reduction = op.name if type(op) is type(torch.distributed.ReduceOp.SUM) else "PREMUL_SUM"
    _demand(name, reduction != "PREMUL_SUM")
    return str(reduction.lower())


Prepared = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of ``polyfills.collectives``, and its operands after the group."""


def _all_reduce(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of ``all_reduce``."""
    tensor = bound_arguments["tensor"]
    _demand("all_reduce", _plain(trace, tensor))
    return collectives.all_reduce, (tensor, _operation("all_reduce", bound_arguments))


def _broadcast(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of ``broadcast``. The operands are the tensor and the sender's rank in the group."""
    tensor, root, of_group = (
        bound_arguments["tensor"],
        bound_arguments["src"],
        bound_arguments.get("group_src"),
    )
    _demand("broadcast", _plain(trace, tensor), (root is None) is not (of_group is None))
    ranks = torch.distributed.get_process_group_ranks(bound_arguments["group"])
    _demand("broadcast", of_group in range(len(ranks)) if root is None else root in ranks)
    return collectives.broadcast, (tensor, of_group if root is None else ranks.index(root))


def _gather(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of a gather into one tensor."""
    output, tensor = bound_arguments["output_tensor"], bound_arguments["input_tensor"]
    _demand("all_gather", _plain(trace, output, tensor))
    _demand("all_gather", _is_concatenation(output, tensor, _size(bound_arguments)))
    return collectives.all_gather, (output, tensor)


def _gather_list(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of a gather into a list of tensors."""
    outputs, tensor = bound_arguments["tensor_list"], bound_arguments["tensor"]
    _demand("all_gather", type(outputs) is list, _plain(trace, tensor, *outputs))
    _demand("all_gather", len(outputs) == _size(bound_arguments))
    _demand("all_gather", *(output.shape == tensor.shape for output in outputs))
    return collectives.all_gather_list, (outputs, tensor)


def _reduce_scatter(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of a reduction whose parts go to the members."""
    output, tensor = bound_arguments["output"], bound_arguments["input"]
    _demand("reduce_scatter", _plain(trace, output, tensor))
    _demand("reduce_scatter", _is_concatenation(tensor, output, _size(bound_arguments)))
    return collectives.reduce_scatter, (output, tensor, _operation("reduce_scatter", bound_arguments))


def _all_to_all(trace: Trace, bound_arguments: dict[str, Any]) -> Prepared:
    """Check the arguments of ``all_to_all_single``. The operands have the sizes of the parts."""
    output, tensor, size = bound_arguments["output"], bound_arguments["input"], _size(bound_arguments)
    _demand("all_to_all_single", _plain(trace, output, tensor), output.dim() > 0, tensor.dim() > 0)
    splits = [
        list(split or [tensor.shape[0] // size] * size)
        for split in (bound_arguments["output_split_sizes"], bound_arguments["input_split_sizes"])
    ]
    for split, split_tensor in zip(splits, (output, tensor), strict=True):
        _demand("all_to_all_single", len(split) == size, sum(split) == split_tensor.shape[0])
    _demand("all_to_all_single", output.shape[1:] == tensor.shape[1:])
    return collectives.all_to_all, (output, tensor, *splits)


_FUNCTIONAL: dict[str, Callable[[Trace, dict[str, Any]], Prepared]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _gather_list,
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_single", "_all_gather_base"), _gather),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_single"), _reduce_scatter),
    "_reduce_scatter_base": _reduce_scatter,
    "all_to_all_single": _all_to_all,
}
"""By the name of the collective: the function that checks the arguments and returns the call of the functional collective."""


def _facts() -> list[BuiltinFunctionType]:
    """Return the C functions that read the constant properties of a group."""
    group = torch.distributed.ProcessGroup
    methods = [vars(group)[name].__func__ for name in _METHODS]
    getters = [vars(group)[name].fget for name in _PROPERTIES]
    return [fact for fact in (*methods, *getters) if type(fact) is BuiltinFunctionType]


if torch.distributed.is_available():
    RULES.add(run_plainly, *_facts())
