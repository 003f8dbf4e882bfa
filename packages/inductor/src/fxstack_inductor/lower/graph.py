"""Lower a whole FX graph, node by node."""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from fxstack_inductor.errors import NotLowered, UnsupportedGraphError
from fxstack_inductor.failures import about
from fxstack_inductor.ir.expr import ZERO, Expr
from fxstack_inductor.ir.nodes import (
    Computed,
    Extern,
    ExternCall,
    Input,
    Node,
    Pointwise,
    Read,
    View,
    resolve,
)
from fxstack_inductor.lower.context import Context
from fxstack_inductor.lower.host.bindings import Symbols
from fxstack_inductor.lower.host.host_numbers import HostNumbers
from fxstack_inductor.lower.host.numbers import word
from fxstack_inductor.lower.host.symbols import may_exceed_word, size_expr
from fxstack_inductor.lower.host.unused_numbers import drop_unused_comparisons
from fxstack_inductor.lower.launches import launch_arguments
from fxstack_inductor.lower.layouts import FakeFacts, check_layout, layout_of, set_layout, strided_view
from fxstack_inductor.lower.nested.calls import nested_call
from fxstack_inductor.lower.nested.graphs import NestedGraphs, calls_nested_graphs, map_functions
from fxstack_inductor.lower.node_queries import (
    asserted_numbers,
    has_effect,
    has_tensor,
    is_first_use,
    is_number,
    is_simplified,
    kernel_dtypes,
    may_alias,
    mutates_tensor,
    symbolic,
    tensors,
    user_line,
)
from fxstack_inductor.lower.program import Fallback, HostCall, HostValue, Mutation, Program, SymbolBinding
from fxstack_inductor.lower.registry import Updates
from fxstack_inductor.lower.repeated import RepeatedRules
from fxstack_inductor.lower.rounded import rounded_nodes
from fxstack_inductor.lower.target import CPU_KERNELS, KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch, functional_launch_of
from fxstack_interchange.torch_facts.effects import RANGES, is_ordered

LOG = logging.getLogger(__name__)
NO_RULES: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({})
COPY = torch.ops.aten.copy_.default
NEW_SIZE = "a result size that is known only after the call"


def lower_graph(
    graph_module: GraphModule,
    rules: Mapping[Any, Callable[..., Any]],
    options: InductorOptions,
    target: KernelTarget = CPU_KERNELS,
    chosen: Mapping[str, Callable[..., Any]] = NO_RULES,
    *,
    nested: NestedGraphs | None = None,
    prefix: str = "",
) -> Program:
    """Return the tensor-level IR of ``graph_module``, whose nodes carry fake values in ``meta["val"]``.

    The pass ``lower_operators`` calls this function. Operators on tensors of ``target.device`` become
    loops. ``chosen`` maps names of single nodes to rules that replace the rules of their operators. ``nested``
    collects the functions that operators call. Names of constants begin with ``prefix``.
    """
    lowering = Lowering(
        graph_module, rules, options, target, chosen, nested=nested or NestedGraphs(), prefix=prefix
    )
    for node in graph_module.graph.nodes:
        with about(node.name):
            lowering.run(node)
    drop_unused_comparisons(lowering.program)
    return lowering.program


class Lowering:
    """Lowers the nodes of one graph in order: each handler returns the lowered value of a node, and ``values`` keeps it."""

    def __init__(
        self,
        graph_module: GraphModule,
        rules: Mapping[Any, Callable[..., Any]],
        options: InductorOptions,
        target: KernelTarget,
        chosen: Mapping[str, Callable[..., Any]],
        *,
        nested: NestedGraphs,
        prefix: str,
    ) -> None:
        self.module = graph_module
        self.chosen = chosen
        self.rules = rules
        self.context = Context(options, target, rounded=rounded_nodes(graph_module.graph))
        self.program = Program(many_threads=target.many_threads)
        self.values: dict[FxNode, Any] = {}
        self.materialised: dict[Node, Node] = {}
        """View -> its copy, for views that an ATen call or an output needs in memory."""
        self.copies: Counter[str] = Counter()
        """Number of copies by name, so that two copies get different names."""
        self.symbols = Symbols(self.program)
        self.facts = FakeFacts()
        self.nested = nested
        self.prefix = prefix
        self.placeholder_values: list[Any] = []
        """Fake values of placeholders whose size symbols are not defined yet. A size may depend on a later
        placeholder, so the first call defines the symbols of all placeholders."""
        self.numbers = HostNumbers(self.program, target.device)
        self.repeated = RepeatedRules(self.context, rules, self.values, self.facts, self.numbers)
        self.asserted = asserted_numbers(graph_module.graph)
        self.unsimplified: dict[FxNode, HostValue] = {}
        """For each number in ``asserted`` that tracing has simplified: its host value, which the assertions use."""
        self.updates: dict[FxNode, Node] = {}
        """The current value of each placeholder that an operator has changed. ``_output`` makes it a mutation."""

    def run(self, node: FxNode) -> None:
        """Lower one FX node by the handler of its ``op``.

        Raises:
            UnsupportedGraphError: the node is of a kind that a lowered graph does not have.
        """
        if node.op == "output":
            self._output(node)
            return
        handler = getattr(self, f"_{node.op}", None)
        if handler is None:
            raise UnsupportedGraphError(f"node {node.name}: no {node.op} in a lowered graph")
        self.context.current = node.name
        self.context.comment = user_line(node)
        self.context.value = node.meta.get("val")
        if node.op == "call_function":
            self.symbols.define((*self.placeholder_values, self.context.value))
            self.placeholder_values.clear()
        value = self.values[node] = handler(node)
        if isinstance(value, HostValue) and isinstance(node.meta.get("val"), torch.SymFloat):
            self.numbers.add(value)

    # --- inputs ---------------------------------------------------------------------------------------

    def _placeholder(self, node: FxNode) -> Any:
        """Add a graph input, and bind the size symbols that the input gives."""
        self.program.parameters.append(node.name)
        value = node.meta.get("val")
        self.placeholder_values.append(value)
        if isinstance(value, torch.Tensor):
            self.symbols.bind_sizes(node.name, value)
            return self._input(node.name, value)
        return self._number(node.name, value)

    def _number(self, name: str, value: object) -> Expr | HostValue:
        """Return the number ``name`` of the host program: a size expression for an integer, else a host value."""
        if not isinstance(value, torch.SymInt):
            return HostValue(name)
        expr = size_expr(value)
        self.symbols.bind(expr, SymbolBinding("", name))
        return expr

    def _get_attr(self, node: FxNode) -> Any:
        """Return an attribute of the module; a tensor becomes an input that the program itself holds."""
        target = self.module
        for part in str(node.target).split("."):
            target = getattr(target, part)
        if not isinstance(target, torch.Tensor):
            return target
        name = f"{self.prefix}{node.name}"
        self.program.constants[name] = target
        fake = node.meta.get("val")
        return self._input(name, target if fake is None else fake)

    def _input(self, name: str, value: torch.Tensor) -> Node:
        """Add a tensor to the program's inputs."""
        delta = ZERO
        if value.layout is torch.strided:
            delta = size_expr(value.storage_offset())
        result = Input(name=name, layout=self.facts.layout(value), origin=name, delta=delta)
        self.program.inputs[name] = result
        return result

    # --- calls ----------------------------------------------------------------------------------------

    def _call_function(self, node: FxNode) -> Any:
        """Lower a call: as a size expression, a mutation, a launch of a user's kernel, by a rule, or as a call of ATen."""
        operation = None if node.name in self.chosen else self.repeated.operation(node)
        if self.repeated.repeat(operation):
            self.program.steps.append(self.context.nodes[-1])
            return self.context.nodes[-1]
        value = node.meta.get("val")
        if node.target is operator.getitem:
            return self._getitem(node)
        if isinstance(value, torch.SymInt) and self.symbols.knows(value):
            if node in self.asserted and is_simplified(value):
                self._append_host_call(node)
                self.unsimplified[node] = HostValue(node.name)
            elif may_exceed_word(value):
                self._append_word_check(node, value)
            return size_expr(value)
        if node.target is COPY and self._mutates_input(node):
            return self._mutation(node)
        launch = functional_launch_of(node.target)
        if launch is not None:
            return self._launch(node, launch)
        rule = self.chosen.get(node.name) or self.rules.get(node.target)
        if rule is not None and not self.symbols.knows_sizes(value):
            self.program.fallbacks.append(Fallback(node.name, str(node.target), NEW_SIZE))
        elif rule is not None and self._can_become_loops(node):
            try:
                return self.repeated.keep(operation, self._apply(node, rule))
            except NotLowered as reason:
                self.program.fallbacks.append(Fallback(node.name, str(node.target), str(reason)))
            except Exception as error:
                self._report(node, error)
        return self._extern(node)

    def _launch(self, node: FxNode, launch: FunctionalLaunch) -> Any:
        """Lower a launch of a user's Triton kernel, on copies of written arguments where needed."""
        prepared = launch_arguments(node, launch, self.values.__getitem__)
        if prepared is None:
            return self._extern(node)
        arguments, copies = prepared
        self.program.steps.extend(copies)
        args = self._map(arguments, self.materialise)
        call = ExternCall(
            name=node.name,
            target=launch.in_place,
            args=tuple(args),
            kwargs={},
            reads=tuple(tensors(args)),
            alias=True,
            comment=user_line(node),
        )
        self.program.steps.append(call)
        return self._outputs(call, node.meta["val"], ())

    def _report(self, node: FxNode, error: Exception) -> None:
        """Record a failed rule as a fallback to ATen, because a defect of a rule must not make compilation fail."""
        inputs = [self.values[arg] for arg in node.all_input_nodes]
        if isinstance(error, TypeError) and any(isinstance(v, HostValue) for v in inputs):
            reason = "a number that only the host knows"  # the rule needs the value while compiling
            self.program.fallbacks.append(Fallback(node.name, str(node.target), reason))
            return
        if self.context.options.raise_failures:
            raise error
        LOG.info("lowering %s (%s) failed; it runs in ATen", node.name, node.target, exc_info=error)
        self.program.fallbacks.append(Fallback(node.name, str(node.target), repr(error), defect=True))

    def _getitem(self, node: FxNode) -> Any:
        """Return an item of a result with several parts; the host takes it if the result is a host value."""
        container = self.values[node.args[0]]
        if isinstance(container, HostValue):
            return self._host(node)
        return container[node.args[1]]

    def _can_become_loops(self, node: FxNode) -> bool:
        """Whether all tensors are dense, of dtypes that kernels handle, on one device of the kernels' type.

        Beside GPU tensors, a 0-d CPU tensor counts as a number, as in eager.
        """
        arguments = [arg.meta.get("val") for arg in node.all_input_nodes]
        if self.context.target.device != "cpu":
            arguments = [value for value in arguments if not is_number(value)]
        values = [node.meta.get("val"), *arguments]
        flat = [v for value in values for v in (value if isinstance(value, (tuple, list)) else [value])]
        kinds = {self.facts.kind(v) for v in flat if isinstance(v, torch.Tensor)}
        devices = {device for device, _ in kinds}
        dtypes = kernel_dtypes(node.target, float8=self.context.target.float8)
        if len(devices) > 1 or not all(dtype in dtypes for _, dtype in kinds):
            return False
        self.context.device = next(iter(devices), self.context.device)
        return bool(self.context.device.type == self.context.target.device)

    def _apply(self, node: FxNode, rule: Callable[..., Any]) -> Any:
        """Run ``rule`` and append the nodes that it made; if the rule raises, the nodes are dropped."""
        args, kwargs = self._operands(self._map((node.args, node.kwargs), lambda x: x))
        before = len(self.context.nodes)
        try:
            result = rule(self.context, *args, **kwargs)
            changes: tuple[tuple[int, Node], ...] = ()
            if isinstance(result, Updates):
                self._require_inputs(node, result.changes)
                changes, result = result.changes, result.results
            self._finish(node, result)
        except Exception:
            del self.context.nodes[before:]
            raise
        self.program.steps.extend(self.context.nodes[before:])
        for position, changed in changes:
            self._update(node.args[position], changed)
        return result

    def _operands(self, value: object) -> Any:
        """Return the arguments of a rule.

        Host floats and tensors of other devices become values that kernels can read.
        """
        if isinstance(value, HostValue):
            return self.numbers.scalar(value, self.context.device)
        if isinstance(value, Node) and value.device.type != self.context.target.device:
            node = self.materialise(value)
            return self.numbers.argument(value.name, node, value.dtype, self.context.device)
        if isinstance(value, (tuple, list)):
            return type(value)(self._operands(v) for v in value)
        if isinstance(value, dict):
            return {k: self._operands(v) for k, v in value.items()}
        return value

    def _require_inputs(self, node: FxNode, changes: Iterable[tuple[int, Node]]) -> None:
        """Raise ``NotLowered`` if a change cannot be expressed as a new value of a tensor of the graph.

        A changed tensor that other values may alias would show its old elements through the aliases.
        """
        for position, _ in changes:
            target = node.args[position]
            if not isinstance(target, FxNode):
                raise NotLowered("an update of an argument that is no tensor of the graph")
            if target.op != "placeholder" and not is_first_use(target, node):
                raise NotLowered("an update of a tensor that other values may alias")

    def _update(self, target: Any, changed: Node) -> None:
        """Make later nodes read ``changed`` in place of ``target``. A changed placeholder is written when the graph ends."""
        if target.op == "placeholder":
            self.updates[target] = changed
        self.values[target] = changed

    def _finish(self, node: FxNode, result: object) -> None:
        """Give the results of a rule eager's layout (above all the strides), and check their shape and dtype."""
        value = node.meta["val"]
        results = result if isinstance(result, tuple) else (result,)
        values = value if isinstance(value, (tuple, list)) else (value,)
        for lowered, fake in zip(results, values, strict=True):
            if not isinstance(lowered, Node) or not isinstance(fake, torch.Tensor):
                continue
            layout = self.facts.layout(fake)
            check_layout(node, lowered, layout)
            if isinstance(lowered, (Computed, View)) and lowered.origin == node.name:
                set_layout(lowered, layout)

    def _extern(self, node: FxNode) -> Any:
        """Append a call of the operator itself: as a step between kernels, or as a host call if no result is
        a tensor.
        """
        value = node.meta.get("val")
        if mutates_tensor(node):
            raise UnsupportedGraphError(
                f"node {node.name}: {node.target} mutates a tensor in the middle of the graph; "
                "functionalize the graph first (only a trailing copy_ into an input is accepted)"
            )
        args, kwargs = self._map((node.args, node.kwargs), self.materialise)
        if calls_nested_graphs(node):
            args, kwargs = map_functions(args, node.target, self.nested), {}
            nested = nested_call(node, args, self.nested) if self.symbols.knows_sizes(value) else None
            if nested is not None:
                self.program.steps += nested[0]
                return nested[1] if isinstance(value, (tuple, list)) else nested[1][0]
        reads = tuple(tensors((args, kwargs)))
        if node.target in RANGES or (not has_tensor(value) and not is_ordered(node.target)):
            return self._host(node)
        call = ExternCall(
            name=node.name,
            target=node.target,
            args=tuple(args),
            kwargs=kwargs,
            reads=reads,
            effect=has_effect(node),
            alias=may_alias(node),
            comment=user_line(node),
            origin=node.meta.get("original_name", ""),
        )
        self.program.steps.append(call)
        return self._outputs(call, value, ())

    def _outputs(self, call: ExternCall, value: object, path: tuple[int, ...]) -> Any:
        """Return the lowered results of ``call``, nested as ``value``; ``path`` are the positions of ``value`` in the result."""
        name = call.name if not path else f"{call.name}_out{'_'.join(map(str, path))}"
        if isinstance(value, torch.Tensor):
            result = Extern(
                name=name,
                layout=layout_of(value),
                origin=call.name,
                call=call,
                path=path,
                strided=value.layout is torch.strided,
                comment=call.comment,
            )
            call.outputs.append(result)
            self.symbols.bind_sizes(name, value)
            return result
        if isinstance(value, (tuple, list)):
            return tuple(self._outputs(call, v, (*path, k)) for k, v in enumerate(value))
        if not path or not symbolic(value):
            return value
        call.numbers.append((name, path))
        return self._number(name, value)

    def _append_host_call(self, node: FxNode) -> None:
        """Append a Python call whose result is a number; an assertion compares unsimplified numbers."""
        operands = (node.args, node.kwargs)
        if node in self.asserted:
            operands = map_arg(operands, lambda arg: self.unsimplified.get(arg, arg))
        args, kwargs = self._map(operands, self.materialise)
        reads = tuple(tensors((args, kwargs)))
        self.program.steps.append(HostCall(node.name, node.target, tuple(args), kwargs, reads))

    def _append_word_check(self, node: FxNode, value: torch.SymInt) -> None:
        """Append the check that an integer fits into 64 bits."""
        expr = size_expr(value)
        number: Expr | HostValue = expr
        if is_simplified(value) or any(v.definition for v in expr.variables):
            self._append_host_call(node)
            number = HostValue(node.name)
        self.program.steps.append(HostCall(f"{node.name}_word", word, (number,), {}))

    def _host(self, node: FxNode) -> Any:
        """Append a Python call, and return its result as a number."""
        self._append_host_call(node)
        return self._number(node.name, node.meta.get("val"))

    def _map(self, value: object, tensor: Callable[[Node], Node]) -> Any:
        """Return ``value`` with FX nodes replaced by their lowered values; ``tensor`` is applied to each tensor."""
        if isinstance(value, FxNode):
            return self._map(self.values[value], tensor)
        if isinstance(value, Node):
            return tensor(value)
        if isinstance(value, (tuple, list)):
            return type(value)(self._map(v, tensor) for v in value)  # keeps immutable_list
        if isinstance(value, dict):
            return {k: self._map(v, tensor) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*self._map((value.start, value.stop, value.step), tensor))
        return value

    # --- memory ---------------------------------------------------------------------------------------

    def materialise(self, node: Node) -> Node:
        """Return ``node`` if it has its own memory or is a strided view of memory; else return a copy."""
        if not isinstance(node, View) or strided_view(node) is not None:
            return node
        if node not in self.materialised:
            self.materialised[node] = self._copy(node)
        return self.materialised[node]

    def _copy(self, view: View) -> Node:
        """Append a kernel that copies ``view`` to memory of its own."""
        base, coords = resolve(view, view.index)
        body = Read(base, coords)
        name = f"{view.name}_copy"
        self.copies[name] += 1  # several views of one operator may have the same name
        if self.copies[name] > 1:
            name += str(self.copies[name])
        copy = Pointwise(name=name, layout=view.layout, origin=view.origin, comment=view.comment, body=body)
        self.program.steps.append(copy)
        return copy

    # --- results --------------------------------------------------------------------------------------

    def _mutates_input(self, node: FxNode) -> bool:
        """Whether a ``copy_`` writes to a graph input."""
        target = node.args[0]
        return isinstance(target, FxNode) and target.op == "placeholder"

    def _mutation(self, node: FxNode) -> Any:
        """Lower a ``copy_`` into a graph input; the program's end writes the input."""
        target = self.program.inputs[node.args[0].name]
        value = self.values[node.args[1]]
        self.program.mutations.append(Mutation(target, self.materialise(value)))
        return target

    def _output(self, node: FxNode) -> None:
        """Set the program's outputs, and write changed inputs before the mutations that the graph requests."""
        for target, changed in self.updates.items():
            input_ = self.program.inputs[target.name]
            self.program.mutations.insert(0, Mutation(input_, changed))
            self.values[target] = input_
        results = node.args[0]
        flat = results if isinstance(results, (tuple, list)) else (results,)
        if any(isinstance(value, (tuple, list, dict)) for value in flat):
            raise UnsupportedGraphError(
                f"node {node.name}: the graph's output is nested; return one flat tuple (pytree.tree_leaves)"
            )
        self.program.outputs = [self._map(value, self.materialise) for value in flat]
