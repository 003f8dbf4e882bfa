"""``torch.autograd.Function.apply`` as one node of the graph.

The methods of the user's class run again whenever the graph runs, and when a later stage traces the graph.
Therefore guards must cover the outside objects that the methods read. To find them, the interpreter runs
``forward`` (with ``setup_context``) and ``backward`` once, as a dry run, and then removes the nodes of the
dry run. The graph breaks if the dry run has an outside effect, or if the interpreter does not support the
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_compat import pytree, tree_leaves
from fxstack_capture.torch_side.autograd import function_arguments
from fxstack_capture.torch_side.autograd.state_reads import State, find_state, note_reads
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import plain_below
from fxstack_capture.trace.state import Args, Kwargs


class Applied:
    """The target of a node for ``function.apply``. It has the name of the user's class.

    ``templates`` describe the arguments that a node cannot hold (``function_arguments``), by position. The
    node's last operands are the tensors in the templates and the replacements of ``outside`` tensors. In the
    methods, the replacements are used in place of the ``outside`` tensors. While a graph runs,
    ``__torch_function__`` of classes is off; ``enables_torch_function`` turns it on in the methods.
    """

    def __init__(
        self,
        function: type[torch.autograd.Function],
        templates: Mapping[int, Any],
        tensors: int,
        *,
        enables_torch_function: bool,
        makes_wrappers: bool,
        state: State | None = None,
        outside: Sequence[torch.Tensor] = (),
    ) -> None:
        self.function = function
        self.templates = templates
        self.tensors = tensors
        self.enables_torch_function = enables_torch_function
        self.makes_wrappers = makes_wrappers
        """Whether the methods make wrapper subclasses. Later stages must take these apart."""
        self.state = state
        """Python objects that the backward reads, with their values. If one changes, the gradients of the
        node are wrong.
        """
        self.outside = [ref(tensor) for tensor in outside]
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        # If the module of a target is below ``torch``, torch.fx prints its path. The path leads to the class.
        self.__module__ = function.__module__.replace("torch", "applied", 1)

    @property
    def __fxstack_parts__(self) -> tuple[Any, ...]:
        """Return all parts that determine the meaning of a call. The disk cache uses them in the key of the
        graph.
        """
        return (
            self.function,
            dict(self.templates),
            self.tensors,
            self.enables_torch_function,
            len(self.outside),
        )

    def __call__(self, *args: object) -> Any:
        if self.enables_torch_function:
            with torch_compat.EnableTorchFunction():
                return self._apply(*args)
        return self._apply(*args)

    def _apply(self, *args: Any) -> Any:
        """Call ``function.apply``. The operands are put into the templates, and replace the outside tensors."""
        end = len(args) - len(self.outside)
        args, replacements = args[:end], pair_operands(self.outside, args[end:])
        if self.templates:
            end = len(args) - self.tensors
            operands, arguments = args[end:], list(args[:end])
            for position, template in self.templates.items():
                arguments[position] = function_arguments.make(template, operands)
            args = tuple(arguments)
        if replacements:
            return apply_with_operands(self.function, args, replacements)
        return self.function.apply(*args)


class DryRunContext:
    """Replaces ``ctx`` while the interpreter runs the methods. Of its methods, only saving tensors has an
    effect.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: object) -> None:
        """Keep the tensors. The traced backward reads them."""
        self.saved_tensors = tensors

    def mark_dirty(self, *tensors: object) -> None:
        """Ignore the tensors. When the node runs, autograd itself handles the marks."""

    save_for_forward = mark_non_differentiable = mark_dirty

    def set_materialize_grads(self, value: bool) -> None:
        """Keep the flag, because the program may read it later."""
        self.materialize_grads = value


def apply(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Function.apply``. ``fn`` is bound to the class, or the class is the first
    argument. Break the graph for keyword arguments, and if ``fn`` reads an unknown attribute of an object.
    """
    owner = getattr(fn, "__self__", None)
    cls, inputs = (owner, args) if isinstance(owner, type) else (args[0], args[1:])
    if kwargs:
        raise graph_break("unsupported-call", f"{cls.__qualname__}.apply with keyword arguments")
    if tracer.transforms.concern(inputs, {}):
        _demand_no_outer_gradient(cls, inputs)
    wrappers = tracer.wrappers
    wrappers_before = wrappers.count
    state, outside = _dry_run(tracer, cls, inputs)
    maker = function_arguments.Templates(tracer)
    special = {position: value for position, value in enumerate(inputs) if _needs_template(value)}
    templates = {position: maker.of(value) for position, value in special.items()}
    plain = tuple(None if position in templates else value for position, value in enumerate(inputs))
    target = Applied(
        cls,
        templates,
        len(maker.operands),
        enables_torch_function=not tracer.overrides.level and any(map(wrappers.has_torch_function, inputs)),
        makes_wrappers=wrappers.count > wrappers_before,
        state=state,
        outside=[real for real, _ in outside],
    )
    try:
        return tracer.record(target, (*plain, *maker.operands, *(fake for _, fake in outside)), {})
    except AttributeError as error:
        if not templates:
            raise
        text = f"{cls.__qualname__} with an object that it looks into ({error})"
        raise graph_break("unsupported-call", text) from error


def _needs_template(value: object) -> bool:
    """Return whether a node cannot hold the argument. ``function_arguments`` must then describe it by a
    template.
    """
    kinds = function_arguments
    return kinds.is_function(value) or kinds.is_object(value) or kinds.is_named_tuple(value)


def _demand_no_outer_gradient(cls: type, inputs: Sequence[Any]) -> None:
    """Break the graph if a tensor below the transforms of ``torch.func`` requires grad."""
    # Transforms call the methods themselves, so the graph below the transforms has no node for the function.
    # Autograd would differentiate the operators of ``forward`` there, and would not call ``backward``.
    below = (plain_below(x) for x in inputs if isinstance(x, torch.Tensor))
    if torch.is_grad_enabled() and any(x.requires_grad for x in below):
        text = f"{cls.__qualname__} under torch.func, of tensors that require grad"
        raise graph_break("unsupported-call", text)


def _dry_run(tracer: TracerProtocol, cls: type, inputs: Sequence[Any]) -> tuple[State, list[Pair]]:
    """Run the methods once for their guards, and then remove their nodes (a dry run).

    Return the state that the backward reads, and the outside tensors with their fakes. Break the graph if the
    methods have side effects, or if the trace has made a part of the state.
    """
    state: State | None = State([])
    before = Surroundings(tracer.trace, *inputs)
    mark = tracer.builder.mark()
    enabled = torch.is_grad_enabled()
    needs = tuple(isinstance(x, torch.Tensor) and x.requires_grad and enabled for x in inputs)
    try:
        torch_compat.set_grad_enabled(False)
        with tracer.assumptions.none_inside(nested=False):
            context, output = _forward(tracer, cls, inputs, needs)
            torch_compat.set_grad_enabled(enabled)
            changed = before.have_changed()  # check now, because the backward may undo the change
            torch_compat.set_grad_enabled(False)
            if any(needs):
                state = _backward(tracer, cls, context, output)
            outside = find_outside_tensors(tracer, mark, inputs)
    except GraphBreak:
        raise
    except Exception as error:
        raise graph_break("unsupported-call", f"{cls.__qualname__} ({error})") from error
    finally:
        torch_compat.set_grad_enabled(enabled)
        tracer.builder.roll_back(mark)
    if changed or before.have_changed():
        raise graph_break("unsupported-call", f"{cls.__qualname__}, which changes objects other than its own")
    if state is None:
        raise graph_break("unsupported-call", f"{cls.__qualname__}, whose backward reads what may change")
    state.is_copied = any(map(_needs_template, inputs))
    return state, outside


def _forward(
    tracer: TracerProtocol, cls: Any, inputs: Sequence[Any], needs: tuple[bool, ...]
) -> tuple[DryRunContext, Any]:
    """Run ``forward`` on copies of the inputs, with or without ``setup_context``."""
    call = tracer.trace.calls.call
    copies = _copies(tracer, inputs)
    context = DryRunContext(needs)
    tracer.trace.objects.note_new(context)
    if cls.setup_context is torch_compat.SingleLevelFunction.setup_context:
        return context, call(cls.forward, (context, *copies), {})
    output = call(cls.forward, copies, {})
    call(cls.setup_context, (context, copies, output), {})
    return context, output


def _copies(tracer: TracerProtocol, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return a new fake for each tensor input. ``forward`` may write to its inputs or return them."""
    if tracer.transforms.concern(inputs, {}):
        return tuple(
            tracer.record(torch.Tensor.detach, (x,), {}) if isinstance(x, torch.Tensor) else x for x in inputs
        )
    copies = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in inputs)
    for real, copy in zip(inputs, copies, strict=True):
        if isinstance(real, torch.Tensor):
            tracer.builder.alias(copy, real)
    return copies


def _backward(tracer: TracerProtocol, cls: Any, context: DryRunContext, output: Any) -> State | None:
    """Run ``backward`` (or ``vjp``) on new gradients of ``output``. Return the state that it reads, or None."""
    outputs = output if isinstance(output, tuple) else (output,)
    gradients = tuple(
        tracer.record(torch.empty_like, (x,), {}) if isinstance(x, torch.Tensor) else None for x in outputs
    )
    method = cls.backward
    if method is torch.autograd.Function.backward:
        method = cls.vjp
    with note_reads(tracer.trace.objects) as reads:
        tracer.trace.calls.call(method, (context, *gradients), {})
    return find_state(tracer, reads, method)


Pair = tuple[torch.Tensor, torch.Tensor]
Replaced = Mapping[int, Pair]
"""Maps the id of an outside tensor to the tensor and the operand that replaces it."""


def find_outside_tensors(tracer: TracerProtocol, mark: fx.Node, inputs: Sequence[object]) -> list[Pair]:
    """Return the outside tensors that nodes after ``mark`` use, each with its fake. Tensors in ``inputs`` are
    omitted.
    """
    # A tensor that a transform has wrapped has no node yet, and is no placeholder.
    known = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and tracer.builder.is_known(x)]
    input_nodes = set(map(tracer.builder.node_of, known))
    since = reversed(tracer.builder.nodes_since(mark))
    nodes = dict.fromkeys(used for node in since for used in node.all_input_nodes)
    values = [used.meta["val"] for used in nodes if used.op == "placeholder" and used not in input_nodes]
    pairs = [(tracer.original_of(x)[0], x) for x in values if isinstance(x, torch.Tensor)]
    return [(real, fake) for real, fake in pairs if real is not None]


def pair_operands(outside: Sequence[ref[torch.Tensor]], operands: Sequence[torch.Tensor]) -> Replaced:
    """Return the outside tensors that still exist, by id. Each is paired with the operand that replaces it."""
    pairs = [(reference(), operand) for reference, operand in zip(outside, operands, strict=True)]
    return {id(x): (x, operand) for x, operand in pairs if x is not None and x is not operand}


def apply_with_operands(
    function: type[torch.autograd.Function], args: Sequence[object], operands: Replaced
) -> Any:
    """Return ``function.apply(*args)``. The methods use ``operands`` in place of outside tensors, even in the
    backward.
    """
    name = "vjp" if function.backward is torch.autograd.Function.backward else "backward"
    method: Callable[..., Any] = getattr(function, name)

    def differentiate(*gradients: object) -> Any:
        """Run the user's backward. Torch functions in it get the operands in place of outside tensors."""
        with _Replacing(operands):
            return method(*gradients)

    members = {name: staticmethod(differentiate), "__module__": function.__module__}
    kind: Any = type(function.__name__, (function,), members)
    with _Replacing(operands):
        return kind.apply(*args)


class _Replacing(TorchFunctionMode):
    """The mode of ``apply_with_operands``: torch functions get the operand in place of the outside tensor."""

    def __init__(self, operands: Replaced) -> None:
        super().__init__()
        self._operands = operands

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        operands, named = pytree.tree_map_only(torch.Tensor, self._replace, (args, kwargs or {}))
        return func(*operands, **named)

    def _replace(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the operand for an outside tensor. Any other tensor is returned unchanged."""
        pair = self._operands.get(id(tensor))
        return tensor if pair is None else pair[1]
