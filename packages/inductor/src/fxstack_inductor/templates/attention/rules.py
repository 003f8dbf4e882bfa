"""Lower attention operators to calls that become kernels (built by ``templates.attention.kernel``).

The ordinary rules lower the score functions on 0-d tensors; the resulting IR is written into the attention
kernel. A forward with few queries and many keys is split into parts of the keys; ordinary loops join the
parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr, as_expr
from fxstack_inductor.ir.nodes import (
    HALF_DTYPES,
    Body,
    Call,
    Const,
    Extern,
    ExternCall,
    Layout,
    Node,
    Pointwise,
    View,
    contiguous_layout,
    resolve,
)
from fxstack_inductor.lower.context import Context, read
from fxstack_inductor.lower.decompositions.table import decompositions
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.layouts import layout_of
from fxstack_inductor.lower.program import Program
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.lower.target import KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.templates.attention.kernel import attention_step
from fxstack_inductor.templates.attention.records import AttentionCall, Modifier
from fxstack_interchange.fake_mode import make_fake_mode
from fxstack_interchange.operators.attention import Attention
from fxstack_interchange.operators.attention_operators import attention_of, buffers_with_gradients
from fxstack_interchange.operators.flex import POSITIONS

F32 = torch.float32
MAX_ROW_ELEMENTS = 256
"""The longest row of a query, key or value that kernels hold in registers."""
WANTED_PROGRAMS = 264
"""The number of Triton programs that fills a large GPU twice."""
FEW_ROWS = 64
"""The number of query rows (of all heads that share keys) below which the keys are split."""
MIN_PART_KEYS = 256
"""The smallest number of keys in a part."""
MAX_PARTS = 32


@dataclass(frozen=True)
class Setting:
    """The values that all kernels of one attention operator share."""

    ctx: Context
    node: FxNode
    attention: Attention
    """The operator's functions and options."""
    query: Node
    key: Node
    value: Node
    tables: tuple[Node, ...]
    """The tensors of the block mask.

    The first half lists keys for rows of queries, the second half queries for columns of keys.
    """
    score: Modifier
    mask: Modifier | None
    gradient: Modifier | None
    """The gradient of ``score``; None in a forward."""

    def call(self, suffix: str, kind: str, more: Mapping[str, Node], **fields: Any) -> AttentionCall:
        """Add the kernel ``kind`` to the program; ``more`` has the tensors beside query, key and value."""
        tensors = {"query": self.query, "key": self.key, "value": self.value, **more}
        modifiers = [m for m in (self.score, self.mask, self.gradient) if m is not None]
        buffers = [n for m in modifiers for n in m.given.values() if isinstance(n, Node)]
        every = (*tensors.values(), *self.tables, *buffers, *fields.get("additions", ()))
        reads = tuple(dict.fromkeys(_base(x) for x in every))
        call = AttentionCall(
            name=f"{self.node.name}{suffix}", target=self.node.target, args=(), kwargs={},
            reads=reads, build=attention_step, comment=self.ctx.comment, attention=self.attention, kind=kind,
            tensors=tensors, score=self.score, mask=self.mask, **fields,
        )  # fmt: skip
        self.ctx.nodes.append(call)
        return call

    def result_of(self, call: AttentionCall, number: int, layout: Layout) -> Extern:
        """Return the memory to which ``call`` writes its result ``number``."""
        name = f"{call.name}_out{number}"
        out = Extern(
            name=name, layout=layout, origin=self.node.name, call=call, path=(number,), comment=call.comment
        )
        call.outputs.append(out)
        return out


def _base(node: Node) -> Node:
    """Return the tensor under the views of ``node``."""
    return resolve(node, node.index)[0]


def attend(setting: Setting, layouts: Sequence[Layout]) -> tuple[Node, ...]:
    """Return the forward's results: the output, base-2 logarithms of the sums, largest scores."""
    parts = parts_of(setting)
    if parts == 1:
        call = setting.call("", "forward", {}, tables=_of_keys(setting))
        used = {user.args[1] for user in setting.node.users}
        used_layouts = layouts if 2 in used else layouts[:2]
        results = [setting.result_of(call, k, layout) for k, layout in enumerate(used_layouts)]
        return (*results, *results[1 : 4 - len(results)])  # the largest scores have no user here
    return _joined(setting, layouts, parts)


def _of_keys(setting: Setting) -> tuple[Node, ...]:
    """Return the tables that list the keys for rows of queries."""
    return setting.tables[: len(setting.tables) // 2]


def _of_queries(setting: Setting) -> tuple[Node, ...]:
    """Return the tables that list the queries for columns of keys."""
    return setting.tables[len(setting.tables) // 2 :]


def parts_of(setting: Setting) -> int:
    """Return the number of parts of the keys: enough parts to fill a GPU where queries are few."""
    (batch, heads, queries, _), keys = setting.query.shape, setting.key.shape[2].as_int()
    sharing = (heads.as_int() or 1) // (setting.key.shape[1].as_int() or 1)
    rows = (queries.as_int() or FEW_ROWS) * sharing
    programs = (batch.as_int() or 1) * (heads.as_int() or 1) // max(sharing, 1)
    if rows >= FEW_ROWS or programs >= WANTED_PROGRAMS // 2:
        return 1
    most = MAX_PARTS if keys is None else keys // MIN_PART_KEYS
    return max(1, min(most, MAX_PARTS, WANTED_PROGRAMS // max(programs, 1)))


def _joined(setting: Setting, layouts: Sequence[Layout], parts: int) -> tuple[Node, ...]:
    """Compute each part of the keys with its own sum, then add the parts weighted by their sums."""
    ctx = setting.ctx
    whole = as_expr(parts)
    call = setting.call("_parts", "forward", {}, parts=parts, tables=_of_keys(setting))
    shape = layouts[0].shape
    shapes = ((whole, *shape), (whole, *shape[:-1]), (whole, *shape[:-1]))
    out, sums, largest = (
        setting.result_of(call, k, contiguous_layout(s, F32, layouts[k].device)) for k, s in enumerate(shapes)
    )

    def of_part(node: Node) -> Callable[..., Body]:
        return lambda index, reduced: read(node, (*reduced, *index))

    top = ctx.reduction("max", shape[:-1], (whole,), F32, of_part(largest))

    def weight(part: Expr, index: Sequence[Expr]) -> Body:
        """Return the weight of a part: 2 ** (base-2 logarithm of its sum, minus the largest logarithm)."""
        logarithm, most = read(sums, (part, *index)), read(high, index)
        # A part whose keys are all masked has the sum 0, so its logarithm is -inf and its weight is 0.
        nothing = Call("eq", (logarithm, Const(-math.inf, F32)), torch.bool)
        power = Call("exp2", (Call("sub", (logarithm, most), F32),), F32)
        return Call("where", (nothing, Const(0.0, F32), power), F32)

    high = ctx.reduction("max", shape[:-1], (whole,), F32, of_part(sums))
    total = ctx.reduction("sum", shape[:-1], (whole,), F32, lambda i, r: weight(r[0], i))
    mixed = ctx.reduction(
        "sum",
        shape,
        (whole,),
        F32,
        lambda i, r: Call("mul", (weight(r[0], i[:-1]), read(out, (*r, *i))), F32),
    )

    def divided(index: Sequence[Expr]) -> Body:
        """Return an element of the output: the weighted sum, divided by the weights' sum."""
        weights = read(total, index[:-1])
        safe = Call(
            "where", (Call("eq", (weights, Const(0.0, F32)), torch.bool), Const(1.0, F32), weights), F32
        )
        return Call("div", (read(mixed, index), safe), F32)

    def logarithm(index: Sequence[Expr]) -> Body:
        return Call("add", (read(high, index), Call("log2", (read(total, index),), F32)), F32)

    result = ctx.pointwise(shape, layouts[0].dtype, divided)
    return result, ctx.pointwise(shape[:-1], F32, logarithm), top


def differentiate(  # noqa: PLR0917
    setting: Setting, saved: Sequence[Node], grad_sums: Node | None, layouts: Sequence[Layout],
    places: Sequence[int], buffers: Sequence[Node],
) -> tuple[Node, ...]:  # fmt: skip
    """Return the gradients of query, key, value and of the buffers at ``places`` (which start at zero)."""
    ctx, (out, sums, grad_out) = setting.ctx, saved
    shape = out.shape

    def product(index: Sequence[Expr], reduced: Sequence[Expr]) -> Body:
        return Call("mul", (read(out, (*index, *reduced)), read(grad_out, (*index, *reduced))), F32)

    delta: Node = ctx.reduction("sum", shape[:-1], (shape[-1],), F32, product)
    if grad_sums is not None:
        plain = delta

        def less(index: Sequence[Expr]) -> Body:
            query_gradient = Call("mul", (read(grad_sums, index), Const(1 / math.log(2), F32)), F32)
            return Call("sub", (read(plain, index), query_gradient), F32)

        delta = ctx.pointwise(shape[:-1], F32, less)
    roles = {"grad": grad_out, "sums": sums, "delta": delta}
    zeros = {place: _zeros(setting, place, buffers[place]) for place in places}
    targets = tuple(zeros[a.buffer] for a in setting.attention.additions)
    if targets and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("gradients of tensors that scores look up, which are added in any order")
    queries = setting.call(
        "_queries", "queries", roles, tables=_of_keys(setting), additions=targets, gradient=setting.gradient
    )
    query_gradient = setting.result_of(queries, 0, layouts[0])
    keys = setting.call("_keys", "keys", roles, tables=_of_queries(setting), gradient=setting.gradient)
    key_gradients = [setting.result_of(keys, k, layouts[k + 1]) for k in range(2)]
    added = (_after(setting, query_gradient, zeros[place], buffers[place]) for place in places)
    return (query_gradient, *key_gradients, *added)


def _zeros(setting: Setting, place: int, like: Node) -> Extern:
    """Return zeroed float32 memory that gradients are added to; GPUs add float32 atomically."""
    device, name = setting.query.device, f"{setting.node.name}_sum{place}"
    layout = contiguous_layout(like.shape, F32, device)
    kwargs = {"dtype": F32, "device": device}
    return _called(setting, torch.ops.aten.zeros.default, name, layout, (list(like.shape),), kwargs)


def _after(setting: Setting, written: Node, zeros: Extern, like: Node) -> Node:
    """Return ``zeros`` as it is after the kernel of ``written`` has added to it."""
    alias = torch.ops.aten.alias.default
    name = f"{zeros.name}_done"
    done = _called(setting, alias, name, zeros.layout, (zeros,), {}, after=(written,))
    if like.dtype is F32:
        return done
    return setting.ctx.pointwise(like.shape, like.dtype, lambda i: read(done, i))


def _called(  # noqa: PLR0917
    setting: Setting, target: object, name: str, layout: Layout, args: tuple[Any, ...],
    kwargs: dict[str, Any], after: tuple[Node, ...] = (),
) -> Extern:  # fmt: skip
    """Append an ATen call with one tensor as result, and return the tensor.

    The call must run after the nodes ``after``.
    """
    reads = (*(arg for arg in args if isinstance(arg, Node)), *after)
    call = ExternCall(name=name, target=target, args=args, kwargs=kwargs, reads=reads, alias=bool(after))
    out = Extern(name=name, layout=layout, origin=setting.node.name, call=call)
    call.outputs.append(out)
    setting.ctx.nodes.append(call)
    return out


# --- functions of a score ------------------------------------------------------------------------


def modifier(  # noqa: PLR0917
    module: GraphModule,
    leading: Sequence[torch.Tensor],
    rest: Sequence[tuple[Any, Node | Expr]],
    decompositions: Mapping[Any, Any],
    lower: Callable[[GraphModule], Program],
    dtype: torch.dtype,
) -> Modifier:
    """Lower ``module``, a score function whose result has ``dtype``.

    The first inputs are the 0-d ``leading``. ``rest`` lists the other inputs (buffers and integers) with
    their fake values.

    Raises:
        NotLowered: ``module`` needs more than pointwise loops and views.
    """
    number = torch.empty((), dtype=torch.int64, device="meta")
    mode = make_fake_mode(leading[0].fake_mode.shape_env)
    device = leading[0].device
    inputs = (*leading, *(number if fake is None else fake for fake, _ in rest))
    with mode:
        examples = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device) for x in inputs]
        traced = make_fx(module, decomposition_table=dict(decompositions))(*examples)
    traced.graph.eliminate_dead_code()
    program = lower(traced)
    for step in program.steps:
        if not isinstance(step, (Pointwise, View)):
            raise NotLowered(f"a function of a score that needs {step.name}")
    if any(constant.dim() for constant in program.constants.values()):
        raise NotLowered("a function of a score that holds a tensor")
    if getattr(program.outputs[0], "dtype", None) is not dtype:
        raise NotLowered(f"a function of a score whose result is not of dtype {dtype}")
    names = program.parameters[len(leading) :]
    return Modifier(program, dict(zip(names, (node for _, node in rest), strict=True)))


def require_supported(query: Node, key: Node, value: Node) -> None:
    """Raise ``NotLowered`` for unsupported inputs: head sizes must be known, queries half or float32."""
    sizes = [query.shape[3], value.shape[3]]
    static_sizes = [*sizes, query.shape[1], key.shape[1], value.shape[1]]
    if any(size.as_int() is None for size in static_sizes) or query.dtype not in {*HALF_DTYPES, F32}:
        raise NotLowered("attention whose heads have unknown sizes, or of another dtype")
    if not all(1 <= (size.as_int() or 0) <= MAX_ROW_ELEMENTS for size in sizes):
        raise NotLowered(f"attention over rows of more than {MAX_ROW_ELEMENTS} elements")
    if any(size.as_int() == 0 for size in (*query.shape, *key.shape)):
        raise NotLowered("attention over nothing")
    batches = key.shape[0]
    if batches != query.shape[0] and batches != 1:
        raise NotLowered("attention whose batches may or may not be one")


# --- the rule ------------------------------------------------------------------------------------


def attention_rules(
    graph_module: GraphModule, options: InductorOptions, target: KernelTarget
) -> dict[str, Callable[..., Any]]:
    """Return the rules for the calls of attention operators by node name."""
    lower = partial(lower_graph, rules=RULES, options=options, target=target)
    nodes = [node for node in graph_module.graph.nodes if attention_of(node.target) is not None]
    return {node.name: attention_rule(node, lower, decompositions()) for node in nodes}


def attention_rule(
    node: FxNode, lower: Callable[[GraphModule], Program], decompositions: Mapping[Any, Any]
) -> Callable[..., tuple[Node, ...]]:
    """Return the rule for ``node``, a call of ``fxstack_interchange.operators.attention_operators``."""
    operator = attention_of(node.target)
    assert operator is not None
    attention, is_backward = operator

    def rule(  # noqa: PLR0917 - the operator's own order
        ctx: Context, query: Node, key: Node, value: Node, tables: Sequence[Node],
        buffers: Sequence[Node], numbers: Sequence[Any], *more: Any,
    ) -> tuple[Node, ...]:  # fmt: skip
        """Lower the operator to its kernels, and return its results."""
        require_supported(query, key, value)
        shared: list[Node | Expr] = [*buffers, *(ctx.size(number) for number in numbers)]
        arguments: Sequence[Any] = node.args[4]
        fakes = [arg.meta["val"] for arg in arguments] + [None] * len(numbers)
        rest = list(zip(fakes, shared, strict=True))
        number = node.args[0].meta["val"].new_zeros
        score = number((), dtype=F32)
        where = [number((), dtype=torch.int64) for _ in range(POSITIONS)]

        def lower_function(
            module: GraphModule | None, *leading: torch.Tensor, dtype: torch.dtype = F32
        ) -> Modifier | None:
            """Lower a score function of the operator; None stays None."""
            if module is None:
                return None
            return modifier(module, leading, rest, decompositions, lower, dtype)

        plain = lower_function(attention.score, score, *where)
        assert plain is not None
        gradient = lower_function(attention.gradient, score, *where, score) if is_backward else None
        mask = lower_function(attention.mask, *where, dtype=torch.bool)
        setting = Setting(ctx, node, attention, query, key, value, tuple(tables), plain, mask, gradient)
        layouts = [layout_of(fake) for fake in node.meta["val"]]
        if not is_backward:
            return attend(setting, layouts)
        out, sums, grad_out, grad_sums = more
        first = grad_sums[0] if grad_sums else None
        places = buffers_with_gradients(attention)
        return differentiate(setting, (out, sums, grad_out), first, layouts, places, buffers)

    return rule
