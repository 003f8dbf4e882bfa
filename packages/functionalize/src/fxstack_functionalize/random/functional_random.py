"""Random numbers as a pure function: a graph takes the state of torch's generator and returns the next state.

``with_random_state`` adds an input and a result to a captured graph. The trace records each operator that
draws as an own operator, which takes a state and returns the next state with its results. So data flow alone
orders the graph: equal states give equal numbers, also in a backward that recomputes some of them. The
numbers are eager's bit by bit, because each operator runs eager's kernel on a generator that is set to the
state.

The state is that of the CPU generator, which has no seed and offset. Draws on other devices stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule
from torch.utils.weak import WeakTensorKeyDictionary

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.recording import RecordingMode
from fxstack_functionalize.torch_compat import OpOverload, tree_leaves
from fxstack_interchange import StageGraph
from fxstack_interchange.modules import make_graph_module
from fxstack_interchange.operators.seeds import GET_STATE, MANUAL_SEED, SET_STATE, STATE_SIZE, set_state

# Limits: draws on a GPU stay as they are. A graph whose backward draws runs in eager, and such programs are
# not kept on disk. Torchbind calls end the graph.

NAMESPACE: Final = "fxstack_random"
_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_outer: Final = WeakTensorKeyDictionary()
"""The outer generator states of graphs that run in eager, by the state that each graph got."""


def _begin(state: torch.Tensor) -> torch.Tensor:
    """Install the graph's generator state, and keep the program's state until ``_end``. Runs only in eager."""
    _outer[state] = torch.get_rng_state()
    torch.set_rng_state(state)
    return state.clone()


def _end(state: torch.Tensor) -> torch.Tensor:
    """Restore the program's generator state. Return the state that the graph has reached."""
    reached = torch.get_rng_state()
    torch.set_rng_state(_outer.pop(state))
    return reached


def _define(name: str, schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    """Define an operator with an eager kernel and a fake kernel. Autograd passes it through."""
    _LIBRARY.define(f"{name}{schema}")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    overload: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return overload


BEGIN: Final = _define("begin", "(Tensor state) -> Tensor", _begin, torch.empty_like)
"""Begin to draw from ``state``. A trace records no draw for this operator."""
END: Final = _define("end", "(Tensor state) -> Tensor", _end, torch.empty_like)
"""Return the state after all draws since ``BEGIN``."""


def _state_of(seed: int) -> torch.Tensor:
    return torch.Generator().manual_seed(seed).get_state()


STATE_OF: Final = _define(
    "state_of",
    "(SymInt seed) -> Tensor",
    _state_of,
    lambda _seed: torch.empty(STATE_SIZE, dtype=torch.uint8, device="cpu"),
)
"""Return the state after ``torch.manual_seed``."""


def with_random_state(module: GraphModule, example_inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """Return ``module`` with the generator's state as last input and second result, and its inputs.

    The state is a byte tensor of ``torch.get_rng_state()``. In eager, the new graph does not change the
    generator.
    """
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    result = graph.graph_copy(module.graph, copies)
    # Behind all placeholders: the positions of the other inputs, and so their names and specs, stay.
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(placeholders[-1] if placeholders else graph._root):
        state = graph.placeholder("random_state")
    with graph.inserting_after(state):
        graph.call_function(BEGIN, (state,))
    graph.output((result, graph.call_function(END, (state,))))
    return make_graph_module(module, graph), [*example_inputs, torch.get_rng_state()]


def use_generator(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compiled`` (a compiled ``with_random_state`` graph) as a function that uses torch's generator."""

    def call(*args: object) -> Any:
        """Pass torch's generator state to the compiled graph, and install the state that it returns."""
        result, state = compiled(*args, torch.get_rng_state())
        torch.set_rng_state(state)
        return result

    return call


def is_random(stage: StageGraph) -> bool:
    """Whether a graph draws from the CPU generator. ``aot`` asks this with the option ``functional_random``."""
    return any(
        _is_draw(node.target, node.args, node.kwargs, node.meta.get("val"))
        for node in stage.graph_module.graph.nodes
        if node.op == "call_function"
    )


def state_input(graph: Graph) -> int | None:
    """Return the position of the placeholder for the generator's state; None if the graph has none."""
    begins = [node.args[0] for node in graph.nodes if node.target is BEGIN]
    return graph.find_nodes(op="placeholder").index(begins[0]) if begins else None


def _is_draw(target: Any, args: Sequence[Any], kwargs: dict[str, Any], result: object) -> bool:
    """Return whether a call draws from the default CPU generator, or reads or sets its state."""
    if target in (GET_STATE, SET_STATE, MANUAL_SEED):
        return True
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    arguments = {a.name: v for a, v in zip(target._schema.arguments, args, strict=False)} | dict(kwargs)
    if arguments.get("generator") is not None or arguments.get("dropout_p", 1.0) == 0.0:
        return False
    tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


class FunctionalRandomMode(RecordingMode):
    """Records draws as operators from state to state."""

    state: torch.Tensor

    def _run_operator(
        self, func: object, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Thread the state through operators that draw or set it. Other operators are recorded as usual."""
        if func is END and self.state is not args[0]:
            return self.state
        if func is BEGIN or func is END:
            self.state = args[0]
            return super()._run_operator(torch.ops.aten.clone.default, types, args, kwargs)
        if func is GET_STATE:
            return super()._run_operator(torch.ops.aten.clone.default, types, (self.state,), {})
        if func is SET_STATE:
            (self.state,) = args
            return None
        if func is MANUAL_SEED:
            self.state = self._seeded(types, args)
            return None
        if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return super()._run_operator(func, types, args, kwargs)
        rule = self.table.get(func)
        if rule is not None or self._is_composite(func):
            result = self._decompose(func, rule, args, kwargs)
            if result is not NotImplemented:
                return result
        return self._draw(func, types, args, kwargs)

    def _seeded(self, types: Sequence[type], args: tuple[Any, ...]) -> Any:
        """Record ``torch.manual_seed``. Return the state after it."""
        if torch.cuda.is_available():
            raise UnsupportedGraphError(
                "torch.manual_seed seeds the generators of GPUs, too",
                why="under functional_random a graph has no effect but on the state of the one on CPU",
                fix="compile without functional_random",
            )
        return super()._run_operator(STATE_OF, types, args, {})

    def _draw(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the functional form of an operator that draws. Its first result is the next state."""
        if not _is_draw(func, args, kwargs, func(*args, **kwargs)):
            return super()._run_operator(func, types, args, kwargs)
        if self.tracer.in_backward:
            raise UnsupportedGraphError(
                f"a backward draws random numbers ({func})",
                why="under functional_random the generator's state is a result of the forward",
                fix="compile without functional_random",
            )
        names = [argument.name for argument in func._schema.arguments]
        other_args = tuple(v for name, v in zip(names, args, strict=False) if name != "generator")
        named = {name: value for name, value in kwargs.items() if name != "generator"}
        drawn = super()._run_operator(functional_form(func), types, (self.state, *other_args), named)
        self.state, *results = drawn
        return results[0] if len(results) == 1 else tuple(results)


@cache
def functional_form(operator: OpOverload) -> OpOverload:
    """Return the operator that draws like ``operator``, but from a state, and returns the next state.

    The form of an operator that fills its first argument returns a new tensor instead.
    """
    name = re.sub(r"\W", "_", f"{operator._schema.name}_{operator._schema.overload_name}")
    arguments = [text for text in _arguments(operator) if not text.startswith("Generator")]
    if arguments[-1:] == ["*"]:
        arguments.pop()
    results = ", ".join(["Tensor"] * (1 + len(operator._schema.returns)))

    def real(state: torch.Tensor, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        """Draw from ``state`` instead of torch's generator. Return the new state, then the drawn values."""
        outer_state = torch.get_rng_state()
        set_state(state)
        try:
            drawn = run(*args, **kwargs)
            return torch.get_rng_state(), *_as_tuple(drawn)
        finally:
            torch.set_rng_state(outer_state)

    def fake(state: torch.Tensor, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        return torch.empty_like(state), *_as_tuple(run(*args, **kwargs))

    def filled(first: torch.Tensor, *args: object, **kwargs: object) -> Any:
        return operator(first.clone(), *args, **kwargs)

    run = filled if operator._schema.is_mutable else operator

    return _define(name, f"({', '.join(['Tensor state', *arguments])}) -> ({results})", real, fake)


def _as_tuple(drawn: Any) -> tuple[torch.Tensor, ...]:
    return (drawn,) if isinstance(drawn, torch.Tensor) else tuple(drawn)


def _arguments(operator: OpOverload) -> list[str]:
    """Return the arguments of a schema, each as its text."""
    text = re.sub(r"\(\w+!\)", "", str(operator._schema))
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    return re.split(r", (?![^\[]*\])", inside) if inside else []
