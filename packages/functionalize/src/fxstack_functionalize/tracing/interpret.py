"""Run a captured graph node by node on functional tensors, and tell the tracer which node runs.

Some nodes hold a region instead of one operator: activation checkpoints and flex attention. A region runs
inline. The nodes of a checkpoint are tagged, so that the partitioner recomputes them in the backward instead
of saving their values. Under a selective policy (``context_fn=create_selective_checkpoint_contexts``) the
policy decides for each node. Random numbers are drawn once and saved, so a recomputed region sees the numbers
of its forward, like eager's ``preserve_rng_state``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import FunctionType, MappingProxyType
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, checkpoint, noop_context_fn

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError, no_gradient_error
from fxstack_functionalize.operators.attention import RECOMPUTE_TAG, flex_attention
from fxstack_functionalize.operators.control_flow import with_gradients
from fxstack_functionalize.operators.fused_optimizers import FUSED
from fxstack_functionalize.operators.leaf_functions import LEAF_FUNCTION, demand_compilable_leaf
from fxstack_functionalize.operators.recurrent import in_steps, steps_in_module
from fxstack_functionalize.operators.substitutes import ONE_HOT
from fxstack_functionalize.random.nested_draws import with_equal_draws
from fxstack_functionalize.regions.inline import calls_regions, inline_regions
from fxstack_functionalize.regions.outline import INVOKE
from fxstack_functionalize.regions.table import NotSharedError, RegionTable
from fxstack_functionalize.torch_compat import (
    FakeTensor,
    FunctionalTensorMode,
    HigherOrderOperator,
    OpOverload,
    pytree,
)
from fxstack_functionalize.torch_state import autocast_dtypes, check_deterministic_setting
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.engine import Engine, current_value
from fxstack_functionalize.tracer.inputs import RestartTraceError
from fxstack_functionalize.tracing.region_calls import call_region
from fxstack_functionalize.tracing.repeated_changes import change_each, change_lists, changes_items
from fxstack_functionalize.views.inplace import (
    InPlaceMode,
    change_list,
    check_changed_list,
    is_torch_function,
    run_in_place_safely,
)
from fxstack_interchange.format.metadata import RECOMPUTE_TAGS, recompute_tag
from fxstack_interchange.torch_facts.effects import BEGIN_RANGE, END_RANGE

FUNCTIONS: Mapping[Any, Callable[..., Any]] = ONE_HOT
"""Functions that replace a captured function."""

NO_RULES: Mapping[Any, Callable[..., Any]] = MappingProxyType({})


class CapturedRun:
    """One run of a captured graph. ``owned`` maps attribute paths to the functional tensors for them."""

    def __init__(
        self,
        module: GraphModule,
        owned: Mapping[str, torch.Tensor],
        tracer: AtenTracer,
        engine: Engine,
        *,
        differentiable: bool = True,
        regions: RegionTable | None = None,
        rules: Mapping[Any, Callable[..., Any]] = NO_RULES,
    ) -> None:
        """``rules``: the decompositions of the trace.

        ``differentiable``: whether changes of the grad mode by the graph have an effect.

        ``regions``: the shared regions of the compilation; None if all regions are traced in line.
        """
        self.module = module
        self.owned = owned
        self.tracer = tracer
        self.engine = engine
        self.differentiable = differentiable
        self.regions = regions
        self.rules = rules
        self.env: dict[Node, Any] = {}

    def run(self, inputs: Sequence[Any]) -> Any:
        """Return the value of the graph's output node."""
        remaining = iter(inputs)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(remaining)
                continue
            if node.op == "output":
                return self._load(node.args[0])
            self.tracer.start_node(node.meta, node.name)
            self.tracer.casting = autocast_dtypes()
            try:
                self.env[node] = getattr(self, node.op)(node)
            except Exception as error:
                error.add_note(_location_note(node))
                raise
        return None

    def _load(self, value: object) -> Any:
        return map_arg(value, self.env.__getitem__)

    def call_function(self, node: Node) -> Any:
        """Run a function node: a region, a replacement, an operator, or an opaque Python function."""
        args = self._load(node.args)
        if node.target is torch_compat.set_grad_enabled and not self.differentiable:
            return None
        check_deterministic_setting(node.target, args, node.kwargs)
        if node.target is INVOKE:
            return self._call_region(node, args)
        if node.target is LEAF_FUNCTION:
            demand_compilable_leaf(args)
        if any(used.op == "get_attr" for used in node.all_input_nodes):
            args = _without_regions(args)
        if node.target in REGIONS:
            return REGIONS[node.target](self.tracer, *args, **self._load(node.kwargs))
        if node.target in FUSED:
            return self._step(FUSED[node.target], args, self._load(node.kwargs))
        if (
            not node.users
            and not self.tracer.casting
            and changes_items(self.rules, node.target, args, node.kwargs)
        ):
            self._change_lists(cast("Callable[..., Any]", node.target), args, self._load(node.kwargs))
            return None
        target = FUNCTIONS.get(node.target, node.target)
        if isinstance(target, HigherOrderOperator):
            _forget_values(self.engine, args)
            target = (with_equal_draws if self.tracer.equal_draws else with_gradients)(target)
            target = _kernel_of(target) or target
            return _with_gradient(node.target, self._call(target, args, self._load(node.kwargs)))
        return self._call(target, args, self._load(node.kwargs))

    def _step(
        self, step: Callable[..., Callable[..., None]], lists: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        """Do the step of a fused optimizer by ordinary operators, for one parameter after the other."""
        change = self._call(step, (), options)
        rows = ([values[row] if values else None for values in lists] for row in range(len(lists[0])))
        change_each(self.tracer, self.engine, lambda *row: self._call(change, row, {}), rows)

    def _change_lists(
        self, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        """Change the tensors of a list, one after the other."""
        check_changed_list(self.engine, function, args, options)
        change_lists(self.tracer, self.engine, partial(change_list, self.engine, function), args, options)

    def _call_region(self, node: Node, args: Sequence[Any]) -> Any:
        """Record the call of a shared region as one node, or run its body in line."""
        try:
            return call_region(self.regions, self.tracer, self.engine, node, args)
        except NotSharedError as why:
            if self.regions is not None and self.regions.refuse(node, why):
                raise RestartTraceError(lambda captured: captured) from why
        body, _, *operands = args
        inner = CapturedRun(
            body,
            {},
            self.tracer,
            self.engine,
            differentiable=self.differentiable,
            regions=self.regions,
            rules=self.rules,
        )
        return inner.run(operands)

    def _call(self, function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function with the checks for in-place operators, also for the calls inside of opaque functions."""
        if not isinstance(function, FunctionType) or is_torch_function(function):
            return in_steps(partial(run_in_place_safely, self.engine, function), function, args, kwargs)
        if getattr(function, "needs_modes", False):  # a graph over wrapper subclasses
            return function(*args, **kwargs)
        with InPlaceMode(self.engine):
            return function(*args, **kwargs)

    def call_method(self, node: Node) -> Any:
        """Call a method. Calls of tensor methods handle in-place changes of views (``run_in_place_safely``)."""
        receiver, *others = args = self._load(node.args)
        method = getattr(torch.Tensor, str(node.target), None)
        if method is None or not isinstance(receiver, torch.Tensor):
            return getattr(receiver, str(node.target))(*others, **self._load(node.kwargs))
        return run_in_place_safely(self.engine, method, args, self._load(node.kwargs))

    def call_module(self, node: Node) -> Any:
        """Run a module with the functional tensors in place of its parameters and buffers."""
        path = str(node.target)
        module = self.module.get_submodule(path)
        prefix = path + "."
        tensors = {
            name[len(prefix) :]: tensor for name, tensor in self.owned.items() if name.startswith(prefix)
        }
        # No InPlaceMode: some modules take another path when a function mode is on.
        with torch_compat.reparametrize_module(module, tensors), steps_in_module(module):
            return module(*self._load(node.args), **self._load(node.kwargs))

    def get_attr(self, node: Node) -> Any:
        """Return the traced form of an owned tensor, else the attribute of the module."""
        path = str(node.target)
        if path in self.owned:
            return self.owned[path]
        return operator.attrgetter(path)(self.module)


def _without_regions(args: Any) -> Any:
    """Return the arguments of an operator. Functions among them call the bodies of regions in line.

    The operator runs its functions more than once, for its gradient and for its random numbers. A region is traced once.
    """
    functions = [value for value in pytree.tree_leaves(args) if isinstance(value, GraphModule)]
    if not any(map(calls_regions, functions)):
        return args
    return pytree.tree_map_only(GraphModule, inline_regions, args)


def _kernel_of(target: object) -> Callable[..., Any] | None:
    """Return the Python kernel of an operator that autograd and functionalisation pass through; None for others.

    An operator of a program may have this kernel alone. Its operators are then those of the trace.
    """
    if not isinstance(target, HigherOrderOperator) or FunctionalTensorMode in target.python_key_table:
        return None
    keys = torch_compat.DispatchKey
    if keys.Autograd in target.py_kernels or keys.Functionalize in target.py_kernels:
        return None
    return cast("Callable[..., Any] | None", target.py_kernels.get(keys.CompositeExplicitAutograd))


def _with_gradient(target: object, result: Any) -> Any:
    """Return the result of a higher-order operator, whose backward must not raise.

    Raises:
        UnsupportedGraphError: for results with a gradient of an operator that has none.
    """
    for value in pytree.tree_leaves(result):
        if isinstance(value, torch.Tensor) and type(value.grad_fn).__name__ == "Error":
            raise no_gradient_error(target)
    return result


def _forget_values(engine: Engine, args: object) -> None:
    """Clear the known values of ``args``, operands of a nested graph, because each round of a loop has other values."""
    for value in pytree.tree_leaves(args):
        if isinstance(value, torch.Tensor):
            fake = current_value(engine, value) if engine.is_functional(value) else value
            if isinstance(fake, FakeTensor):
                fake.constant = None
                fake.item_memo = None  # since torch 2.15 the memo is the result of ``item()``


def _location_note(node: Node) -> str:
    """Return the note that is added to an error at ``node``: the node and the user's stack trace."""
    trace = node.meta.get("stack_trace")
    location = f"\n{trace}" if trace else " (no stack trace recorded)"
    return f"while functionalizing node {node.format_node()}{location}"


CHECKPOINT_OPTIONS = frozenset(
    {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
)


def _checkpoint(tracer: AtenTracer, function: Callable[..., Any], *args: object, **kwargs: Any) -> Any:
    """Run a checkpointed region. Its nodes are tagged to be recomputed, or as the selective policy decides."""
    tracer.tag(RECOMPUTE_TAG)
    graph = tracer.graph
    policy = _policy_of(kwargs.get("context_fn"))
    last_node = next(iter(reversed(graph.nodes)), None)
    arguments_of_function = {key: value for key, value in kwargs.items() if key not in CHECKPOINT_OPTIONS}
    result = (with_equal_draws(function) if tracer.equal_draws else function)(*args, **arguments_of_function)
    if policy is not None:
        for node in reversed(graph.nodes):
            if node is last_node:
                break
            _tag(node, policy)
    return result


def _policy_of(context_fn: Callable[[], Any] | None) -> Callable[..., Any] | None:
    """Return the policy of selective checkpointing; None for a checkpoint without ``context_fn``.

    Raises:
        UnsupportedGraphError: for contexts that are not torch's.
    """
    if context_fn is None or context_fn is noop_context_fn:
        return None
    policy = getattr(context_fn()[0], "policy_fn", None)
    if policy is None:
        raise UnsupportedGraphError(
            "a checkpoint has a context_fn of its own",
            why="its contexts act while the region runs, which a graph does once only",
            fix="use torch.utils.checkpoint.create_selective_checkpoint_contexts, or run this part in eager",
        )
    return cast("Callable[..., Any]", policy)


def _tag(node: Node, policy: Callable[..., Any]) -> None:
    """Ask the policy about one operator, as eager does, and keep the answer if partitioners know it."""
    if not isinstance(node.target, OpOverload):
        return
    args, kwargs = (map_arg(values, lambda used: used.meta.get("val")) for values in (node.args, node.kwargs))
    # Newer versions of torch pass the operator's result to the policy.
    has_output = "op_output" in signature(SelectiveCheckpointContext).parameters
    output = {"op_output": node.meta.get("val")} if has_output else {}
    context = SelectiveCheckpointContext(is_recompute=False, **output)
    answer = policy(context, node.target, *args, **kwargs)
    if isinstance(answer, bool):
        answer = CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
    tag = recompute_tag(answer)
    if tag in RECOMPUTE_TAGS:
        node.meta["recompute"] = tag
    else:
        node.meta.pop("recompute", None)


REGIONS: dict[Any, Callable[..., Any]] = {
    checkpoint: _checkpoint,
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
    torch.ops.higher_order.flex_attention: flex_attention,
    BEGIN_RANGE: lambda tracer, *args: tracer.add_call(BEGIN_RANGE, args, {}),
    END_RANGE: lambda tracer, started: tracer.add_call(END_RANGE, (started,), {}),
}
"""The function that runs each region, of the tracer and the node's arguments."""
