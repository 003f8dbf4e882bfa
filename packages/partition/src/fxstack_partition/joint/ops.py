"""Classify nodes by the kind of their computation, as far as recomputation in the backward depends on it.

The kinds come from torch's declarations (tags, schemas) and, where torch declares nothing, from the tables of
this file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import torch
from torch.fx import Node

from fxstack_interchange.torch_facts.effects import draws, is_ordered, must_run
from fxstack_partition.torch_compat import HigherOrderOperator, OpOverload


class OpKind(Enum):
    """The kind of a node's computation. The value is a text for reasons that users read."""

    INPUT = "input"
    CONSTANT = "constant of the graph"
    SYMBOLIC = "arithmetic on sizes"
    GETITEM = "element of a multiple result"
    RANDOM = "random numbers"
    EFFECT = "side effect"
    DATA_DEPENDENT = "result whose size depends on data"
    HIGHER_ORDER = "higher-order operator"
    COLLECTIVE = "communication between processes"
    VIEW = "view"
    CREATION = "filled with values that cost nothing to make"
    POINTWISE = "element by element"
    GATHER = "indexed reads of another tensor"
    REDUCTION = "reduction"
    HEAVY = "compute-heavy"
    OTHER = "operator not known to be cheap"


NEVER_TWICE = (OpKind.RANDOM, OpKind.EFFECT, OpKind.DATA_DEPENDENT, OpKind.COLLECTIVE)
"""Kinds that must not run twice: the second run would give another result, or the user could observe it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CREATION = _words("""
    full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full arange iota eye scalar_tensor
    linspace empty empty_like empty_strided new_empty new_empty_strided empty_permuted tril_indices
    triu_indices
""")

_POINTWISE = _words("""
    _to_copy clone copy fill where lift_fresh_copy masked_fill constant_pad_nd cat slice_scatter
    select_scatter diagonal_scatter as_strided_scatter repeat flip roll tril triu slice_backward
    select_backward diagonal_backward _prelu_kernel _prelu_kernel_backward elu_backward glu glu_backward
    hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward log_sigmoid_forward
    log_sigmoid_backward mish_backward mse_loss_backward huber_loss_backward smooth_l1_loss_backward
    softplus_backward threshold_backward tanh_backward sigmoid_backward gelu_backward silu_backward
    native_dropout_backward lerp addcmul addcdiv squeeze_copy expand_copy complex polar detach_copy
    convert_element_type cos sin tan acos asin atan acosh asinh atanh add sub mul div eq ne lt le gt ge erf
    erf_inv erfc erfcx exp expm1 floor ceil round log log1p log10 lgamma neg pow sqrt remainder fmod
    isfinite cbrt ndtri bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic device_put
    rev logical_and logical_or logical_not logical_xor contiguous stack
""")

_GATHER = _words("embedding index index_select gather take masked_select_static _unsafe_index")

_REDUCTION = _words("""
    sum mean amax amin max min prod any all argmax argmin var var_mean std std_mean logsumexp norm
    linalg_vector_norm count_nonzero aminmax nansum _softmax _log_softmax native_layer_norm
    native_group_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _fused_rms_norm xor_sum cumsum cumprod logcumsumexp
    _softmax_backward_data _log_softmax_backward_data mse_loss nll_loss_forward nll_loss2d_forward
    avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices
""")

_HEAVY_WORDS = ("mm", "matmul", "conv", "attention", "linear", "lstm", "gru", "rnn", "fft", "linalg")
_HEAVY = _words("""
    sort topk kthvalue median nanmedian mode unique searchsorted bucketize scatter scatter_add scatter_reduce
    index_put index_add index_copy index_reduce masked_scatter embedding_dense_backward _embedding_bag
    _cdist_forward _pdist_forward dot mv addmv ger addr cholesky lu svd
""")

_HIDDEN_WRITES = {
    "native_batch_norm": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
}
"""Arguments that operators update in place although the schemas do not declare the update."""

_MAX_CACHED_OPERATORS = 4096

T = TypeVar("T")


def _cached_by_identity(function: Callable[[OpOverload[..., Any]], T]) -> Callable[[OpOverload[..., Any]], T]:
    """Cache the results of ``function`` by the operator's identity: hashing takes as long as most functions.

    The cache keeps the operator alive, so that no other operator gets its identity.
    """
    results: dict[int, tuple[OpOverload[..., Any], T]] = {}

    def cached(op: OpOverload[..., Any]) -> T:
        """Return the result for an operator, looked up by ``id``. The entry keeps the operator alive."""
        entry = results.get(id(op))
        if entry is None:
            if len(results) >= _MAX_CACHED_OPERATORS:
                results.clear()
            entry = results[id(op)] = (op, function(op))
        return entry[1]

    return cached


_ALIASING_WITHOUT_SCHEMA = frozenset({"_unsafe_view"})
_COLLECTIVE_NAMESPACES = frozenset({"_c10d_functional", "c10d_functional", "c10d", "symm_mem"})


def base_name(target: object) -> str:
    """Return the operator's name without namespace and overload: ``add`` for ``aten.add.Tensor``."""
    if isinstance(target, OpOverload):
        return _overload_name(target)
    return str(getattr(target, "__name__", target))


@_cached_by_identity
def _overload_name(op: OpOverload[..., Any]) -> str:
    return str(op._schema.name).split("::")[-1]


def is_symbolic_value(value: object) -> bool:
    """Whether a node's value is a number, not a tensor."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool)


def is_view(node: Node) -> bool:
    """Whether the result shares the storage of the first argument. An element of ``split`` is a view too."""
    if node.target is operator.getitem:
        parent = node.args[0]
        return isinstance(parent, torch.fx.Node) and is_view(parent)
    return isinstance(node.target, OpOverload) and _returns_view(node.target)


@_cached_by_identity
def _returns_view(op: OpOverload[..., Any]) -> bool:
    """Whether a result of the operator is a view of an argument that the operator does not write to."""
    if base_name(op) in _ALIASING_WITHOUT_SCHEMA:
        return True
    infos = [item.alias_info for item in op._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def written_arguments(node: Node) -> tuple[Node, ...]:
    """Return the arguments that ``node`` updates in place."""
    written = _written_positions(node.target) if isinstance(node.target, OpOverload) else ()
    if not written:
        return ()
    nodes: list[Node] = []
    for index, name in written:
        value = node.args[index] if index < len(node.args) else node.kwargs.get(name)
        items = value if isinstance(value, tuple | list) else (value,)
        nodes += [item for item in items if isinstance(item, torch.fx.Node)]
    return tuple(nodes)


@_cached_by_identity
def _written_positions(op: OpOverload[..., Any]) -> tuple[tuple[int, str], ...]:
    """Return (position, name) of each argument that an operator updates, by its schema and ``_HIDDEN_WRITES``."""
    hidden = _HIDDEN_WRITES.get(base_name(op), ())
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(op._schema.arguments)
        if argument.name in hidden or (argument.alias_info and argument.alias_info.is_write)
    )


def _writes(op: OpOverload[..., Any]) -> bool:
    return op._schema.is_mutable or base_name(op) in _HIDDEN_WRITES


def _has_tag(*tags: torch.Tag) -> Callable[[OpOverload[..., Any]], bool]:
    return lambda op: any(tag in op.tags for tag in tags)


def _named(names: frozenset[str]) -> Callable[[OpOverload[..., Any]], bool]:
    return lambda op: base_name(op) in names


def _reads_data(op: OpOverload[..., Any]) -> bool:
    return _has_tag(torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)(op)


def _returns_alias(op: OpOverload[..., Any]) -> bool:
    """Whether a result of the operator shares memory with an argument: as a view, or because it is written in place."""
    return base_name(op) in _ALIASING_WITHOUT_SCHEMA or any(
        item.alias_info is not None for item in op._schema.returns
    )


def _is_heavy(op: OpOverload[..., Any]) -> bool:
    name = base_name(op)
    return name in _HEAVY or any(word in name for word in _HEAVY_WORDS)


_KINDS: tuple[tuple[OpKind, Callable[[OpOverload[..., Any]], bool]], ...] = (
    (OpKind.COLLECTIVE, lambda op: op.namespace in _COLLECTIVE_NAMESPACES),
    (OpKind.POINTWISE, lambda op: op.namespace == "rngprims" and base_name(op) == "philox_rand"),
    (OpKind.RANDOM, _has_tag(torch.Tag.nondeterministic_seeded)),
    (OpKind.EFFECT, _writes),
    (OpKind.EFFECT, is_ordered),
    (OpKind.DATA_DEPENDENT, _reads_data),
    (OpKind.VIEW, _returns_alias),
    (OpKind.CREATION, _named(_CREATION)),
    (OpKind.POINTWISE, _has_tag(torch.Tag.pointwise)),
    (OpKind.POINTWISE, _named(_POINTWISE)),
    (OpKind.GATHER, _named(_GATHER)),
    (OpKind.HEAVY, _is_heavy),
    (OpKind.REDUCTION, _has_tag(torch.Tag.reduction)),
    (OpKind.REDUCTION, _named(_REDUCTION)),
)
"""Rows are tried in order; the first match gives the kind.

``philox_rand`` is not random for a partition: it computes its result from its arguments seed and offset.
"""


@_cached_by_identity
def _kind_of_overload(op: OpOverload[..., Any]) -> OpKind | None:
    return next((kind for kind, holds in _KINDS if holds(op)), None)


def kind_of(node: Node) -> OpKind:
    """Return the kind of computation of ``node``."""
    if node.op == "placeholder":
        return OpKind.INPUT
    if node.op == "get_attr":
        return OpKind.CONSTANT
    if node.target is operator.getitem and not is_symbolic_value(node.meta.get("val")):
        return OpKind.GETITEM
    # Nobody reads the result, so the call is in the graph for its effect (a check that may raise).
    if must_run(node) and not any(item.users for item in _results(node)):
        return OpKind.EFFECT
    if isinstance(node.target, HigherOrderOperator):
        if is_ordered(node.target):
            return OpKind.EFFECT
        return OpKind.RANDOM if draws(node) else OpKind.HIGHER_ORDER
    kind = _kind_of_overload(node.target) if isinstance(node.target, OpOverload) else None
    if kind is not None:
        return kind
    if node.is_impure():
        return OpKind.EFFECT
    return OpKind.SYMBOLIC if is_symbolic_value(node.meta.get("val")) else OpKind.OTHER


def _results(node: Node) -> tuple[Node, ...]:
    """Return the ``getitem`` nodes of ``node`` if only they read it, else ``node`` itself.

    The result of ``node`` is unused if none of them has users.
    """
    items = tuple(user for user in node.users if user.target is operator.getitem)
    return items if len(items) == len(node.users) and items else (node,)
