"""``TorchTracer``: the part of a trace that owns tensors, symbolic numbers and the FX graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import READS_DATA, GraphBreak, graph_break
from fxstack_capture.guards.records import Equals, IdentityIs, TorchStateIs
from fxstack_capture.guards.torch_state import TorchState, snapshot
from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.history import FrameHistory, offset_of
from fxstack_capture.shapes.marks import is_address_guarded
from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv
from fxstack_capture.sources import BuiltinAttr, Source, StorageOffset, pinned
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_side.arrays import tensor_arrays as numpy_arrays
from fxstack_capture.torch_side.arrays.array_tracer import ArrayTracer
from fxstack_capture.torch_side.autograd import gradients, tensor_hooks
from fxstack_capture.torch_side.autograd import inference_mode as inference
from fxstack_capture.torch_side.fakes import fake_inputs, writes
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_capture.torch_side.fakes.faker import Faker
from fxstack_capture.torch_side.fakes.writes import Listener, has_changed, version_of, written_lists
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.torch_side.global_state.torch_names import NamesOfTorch
from fxstack_capture.torch_side.higher_order.selection import Selection
from fxstack_capture.torch_side.higher_order.transforms import Transforms
from fxstack_capture.torch_side.numbers import number_tensors, tensor_to_int_arguments, unbacked_extrema
from fxstack_capture.torch_side.numbers.counters import Counters, additions
from fxstack_capture.torch_side.numbers.input_numbers import InputNumbers
from fxstack_capture.torch_side.recording import finishing
from fxstack_capture.torch_side.recording.assumptions import Assumptions
from fxstack_capture.torch_side.recording.constants import is_plain
from fxstack_capture.torch_side.recording.execution import name_of, run_fake
from fxstack_capture.torch_side.recording.function_mode import RecordingMode
from fxstack_capture.torch_side.recording.graph import (
    SYMBOLIC,
    GraphBuilder,
    holds_only_graph_values,
    target_of,
    without_from,
)
from fxstack_capture.torch_side.recording.held_objects import replace_objects
from fxstack_capture.torch_side.recording.node_metadata import Annotations, copy_custom
from fxstack_capture.torch_side.rules import attributes, leaves
from fxstack_capture.torch_side.rules import table as rules
from fxstack_capture.torch_side.rules.copying import Copies
from fxstack_capture.torch_side.rules.storages import Storages
from fxstack_capture.torch_side.subclasses import overrides
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class
from fxstack_capture.torch_side.subclasses.suspended_modes import put_back
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_capture.torch_side.subclasses.wrappers import Wrappers, demand_wrapped
from fxstack_capture.trace.records import AttributeWrite, CapturedCode, Construction
from fxstack_capture.trace.state import Args, Kwargs, Trace


class TorchTracer:
    """Implements ``trace.protocols.TorchSide``, which documents the methods. Each trace has its own tracer."""

    def __init__(self, trace: Trace, history: FrameHistory | None = None) -> None:
        self.trace = trace
        self.history = FrameHistory() if history is None else history
        self.mode = CaptureFakeMode()
        self.geometry = Geometry(self._make_shape_env)
        if trace.contract is not None:
            self.geometry.argument_names = trace.contract.names
        self.numbers = InputNumbers(self)
        self.builder = GraphBuilder(self.geometry)
        self.symbols = self.builder.symbols
        self.state = state.StateLog()
        self.regions = state.Regions()
        self.transforms = Transforms(self)
        self.counters = Counters(self)
        self.steps: dict[torch.fx.Node, int] = {}
        """For each node, the step of the root frame that made the node."""
        with put_back():
            self._entry_state: TorchState | None = snapshot()
        self.attribute_writes: list[AttributeWrite] = []
        self.mutated_storages: set[int] = set()
        self.unwritable: dict[int, str] = {}
        self.overriding: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.arrays = ArrayTracer(self)
        self.storages = Storages(self)
        self.overrides = overrides.Overrides(self)
        self.outer_modes: Sequence[Any] = ()
        self.hooks = tensor_hooks.HooksInGraph(self)
        self.selection: Selection | None = None
        """The policy of the selective checkpoint that is being traced."""
        self.choosing = self.busy = self.differentiated = False
        self.has_leaves = False
        self.assumptions = Assumptions(self)
        self._in_session = False
        self.faker = Faker(self.mode)
        self.wrappers = Wrappers(self)
        self.builder.construct_node = self.wrappers.construct_node
        self.notes = Annotations()
        self.names = NamesOfTorch(trace)
        self.is_usual = self.names.is_usual
        self.copies = Copies()
        self._originals: dict[int, tuple[torch.Tensor, Source]] = {}
        self._inputs: list[tuple[torch.Tensor, torch.Tensor, Source]] = []
        self._offsets_guarded = False
        self._finishes: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {}
        self._flags: set[tuple[Callable[..., Any], tuple[Any, ...]]] = set()
        self._attributes: dict[int, dict[str, Any]] = {}
        options = trace.options
        if options.capture_scalar_outputs or options.capture_dynamic_output_shape_ops:
            assert self.geometry.env is self.mode.shape_env  # data-dependent sizes need a shape environment

    def _make_shape_env(self) -> CaptureShapeEnv:
        """Create the shape environment. ``Geometry`` calls this method for the first symbolic size only."""
        options = self.trace.options
        env = CaptureShapeEnv(
            self._user_stack,
            asserts_signs=options.fullgraph,
            allow_scalar_outputs=options.capture_scalar_outputs,
            allow_dynamic_output_shape_ops=options.capture_dynamic_output_shape_ops,
        )
        env.memo.active = self._in_session
        self.mode.use_symbols(env)
        return env

    def _user_stack(self) -> tuple[tuple[str, int, str], ...]:
        return self.trace.interp.user_stack()  # the interpreter does not exist when the environment is made

    def assume(self, value: torch.Tensor, *, truth: bool) -> bool:
        """Continue as if ``bool(value)`` were ``truth``. Return False if no fallback to eager is possible."""
        return self.assumptions.add(value, truth=truth)

    # --- inputs ----------------------------------------------------------------------------------

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Mark the torch calls inside as the tracer's own. ``RecordingMode`` ignores these calls."""
        busy, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = busy

    def enter_tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        # A callback of C code may bring in a tensor while ``RecordingMode`` records torch calls.
        with self.unrecorded(), self.transforms.suspended():
            fake = self._enter_tensor(real, source)
        self.wrappers.guard_entered()
        return fake

    def _enter_tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Make the fake, and register fake, real tensor and source once for each fake."""
        fake = self._fake_of(real, source)
        if id(fake) not in self._originals:
            self._originals[id(fake)] = real, source
            self._inputs.append((fake, real, source))
            if isinstance(fake, FakeTensor) and type(real) not in fake_inputs.PLAIN_CLASSES:
                self.overrides.show(fake, type(real))
            self.builder.enter(fake, source)
            if self._offsets_guarded:
                self.guard_offset(real, source)
        return fake

    def enter_drawn(self, example: torch.Tensor, source: Source) -> torch.Tensor:
        """Return an unguarded fake of a tensor like ``example``, which the replacement code draws."""
        with self.unrecorded():
            fake = self.faker.fake(example, example.size(), example.stride(), 0)
            self.builder.enter(fake, source)
            return fake

    def _fake_of(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Return the fake of a real tensor, with guards. Break the graph for an unsupported tensor."""
        if is_wrapper(real):
            return self.wrappers.fake_of(real, source)
        fake_inputs.demand_supported(real)
        if is_address_guarded(real):
            self.trace.guard(source, IdentityIs(real, id(real)))
        fake = fake_inputs.existing_fake(self, real, source)
        return fake_inputs.make_fake(self, real, source) if fake is None else fake

    def enter_number(self, value: float, source: Source) -> Any:
        return self.numbers.enter(value, source)

    def function_of(self, fn: Callable[[Any], Any], number: object) -> Any:
        return self.numbers.function_of(fn, number)

    def place_of(self, number: object) -> Source | None:
        return self.numbers.place_of(number)

    def guard_offsets(self) -> None:
        """Guard the storage offsets of all inputs, also of later ones: a result may depend on them (``data_ptr``)."""
        if not self._offsets_guarded:
            self._offsets_guarded = True
            for _, real, source in self.inputs():
                self.guard_offset(real, source)

    def guard_offset(self, real: torch.Tensor, source: Source) -> None:
        """Guard the storage offset of the input ``real``, unless it is symbolic, and note it in the history."""
        offset = real.storage_offset()
        self.history.observe(offset_of(source), offset)
        if self.geometry.is_symbolic(StorageOffset(source)):
            return
        self.trace.guard(StorageOffset(source), Equals(offset))

    def source_of(self, tensor: torch.Tensor) -> Source | None:
        return self.original_of(tensor)[1]

    def original_of(self, tensor: torch.Tensor) -> tuple[torch.Tensor | None, Source | None]:
        """Return the real tensor of a fake and its source, or two ``None`` for a tensor made in the trace."""
        pair = self._originals.get(id(tensor)) or self.wrappers.original_of(tensor)
        return (None, None) if pair is None else pair

    def inputs(self) -> list[tuple[torch.Tensor, torch.Tensor, Source]]:
        """Return (fake, real tensor, source) of every input tensor."""
        return list(self._inputs)

    def note_entered(self, tensor: torch.Tensor, entered: torch.Tensor) -> None:
        """Put ``entered`` in place of the fake ``tensor`` in ``inputs``: the program has given it other memory."""
        self._inputs = [(entered if fake is tensor else fake, *rest) for fake, *rest in self._inputs]

    def python_type(self, tensor: torch.Tensor) -> type:
        shown = shown_class(tensor)
        if shown is not None:
            return shown
        if self.wrappers.used and is_wrapper(tensor):
            return type(tensor)
        cls: type = torch.nn.Parameter if getattr(tensor, "_is_param", False) else torch.Tensor
        return cls

    def attributes_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return the attributes that the program has assigned to a fake, by name."""
        return self._attributes.setdefault(id(tensor), {})

    # --- calls -----------------------------------------------------------------------------------

    def is_leaf(self, fn: object) -> bool:
        if leaves.is_operator(fn):
            return type(fn) is not FunctionType or self.is_usual(fn)
        return rules.has_rule(fn)

    def call(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a call of torch in the program: by its overrides, by a rule, or as one node."""
        if self._entry_state is not None:
            self._guard_state(self._entry_state)
        if self.arrays.has_scalars:
            args, kwargs = numpy_arrays.for_call(fn, args, kwargs)
        args, kwargs = self.transforms.without_wrappers(args, kwargs)
        if self.overrides.concern(fn, args, kwargs):
            return self.overrides.call(fn, args, kwargs)
        if self.wrappers.used:
            self.wrappers.guard_constructed(args, kwargs)
        return self.call_plainly(fn, args, kwargs)

    def call_plainly(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a call of torch that no ``__torch_function__`` of the program handles: by a rule, or as one node."""
        if self.overriding and fn in self.overriding:
            return self.overriding[fn](*args, **kwargs)
        rule, function, arguments = rules.rule_of_call(fn, args)
        if rule is not None:
            return rule(self, function, arguments, kwargs)
        if self.trace.options.only_compliant_operators and not leaves.is_compliant(fn):
            raise graph_break("unsupported-call", f"{fn}, an operator without the tag pt2_compliant_tag,")
        if type(fn) is FunctionType:
            return self._call_python(fn, args, kwargs)
        return self.record(fn, args, kwargs)

    def _call_python(self, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
        """Record the call as one node. If it reads data, or a node cannot hold it, interpret the body instead."""
        written = len(self.mutated_storages)
        try:
            return self.record(fn, args, kwargs)
        except GraphBreak as reason:
            # The body may read data only to validate its arguments.
            explained = reason.record.reason.id in READS_DATA or reason.is_argument
            is_unchanged = len(self.mutated_storages) == written
            if not (explained and is_unchanged and self.trace.may_fall_back):
                raise
        return self.trace.interp.call_function(fn, args, kwargs)

    def _guard_state(self, state: TorchState) -> None:
        """Guard the global state of torch at the start of the trace, before the first call of torch."""
        # Suspended modes have guards of their own, so this guard does not compare the mode objects.
        if self.outer_modes:
            state = replace(state, function_modes=())
        self.trace.guard(pinned(torch, "torch"), TorchStateIs(state))
        self._entry_state = None
        self.names.guard_operators()

    def guard_flag(self, getter: Callable[..., Any], args: Args = ()) -> None:
        """Guard the result of ``getter``. The caller calls this method before the trace changes the state."""
        if (getter, args) not in self._flags:
            self._flags.add((getter, args))
            source = pinned(state.Flag(getter, *args), getter.__name__)
            self.trace.guard(BuiltinAttr(source, "value"), Equals(getter(*args)))

    def record(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run ``fn`` on fakes and add a node. A result of known plain data needs no node."""
        args, kwargs = self.transforms.without_wrappers(args, kwargs)
        if self.transforms.concern(args, kwargs):
            return self.transforms.run(fn, args, kwargs)
        try:
            with self.unrecorded():
                return self._record(fn, args, kwargs)
        except GraphBreak as reason:
            arguments = tensor_to_int_arguments.replace_arguments(self, args, kwargs, reason)
            arguments = arguments or replace_objects(self, args, kwargs, reason)
            if arguments is None:
                raise
        return self.record(fn, *arguments)

    def _record(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run ``fn`` on fakes, note its writes, and add the node. The caller has handled transforms."""
        builder = self.builder
        if kwargs and not kwargs.keys().isdisjoint(number_tensors.SCALAR_ARGUMENTS):
            kwargs = number_tensors.with_scalars(self, fn, kwargs)
        args = numpy_arrays.with_plain_scalars(fn, args)
        target = target_of(fn, args)
        self.names.guard_target(target)
        if "from" in kwargs:
            target, kwargs = without_from(target, kwargs)
        tensors: list[torch.Tensor] = []
        node_args = tuple([builder.argument(arg, tensors) for arg in target.args])
        node_kwargs = {name: builder.argument(arg, tensors) for name, arg in kwargs.items()}
        versions = [version_of(tensor) for tensor in tensors]
        wrapped = self.wrappers.demand_supported(fn, args, kwargs)
        written = written_lists(fn, args, kwargs)
        listener = Listener() if None in versions and self.selection is None else None
        checks = self.mode.data_checks
        result = run_fake(self.mode, fn, args, kwargs, listener or self.selection)
        if self.mode.data_checks != checks:
            self.assumptions.note_data_checks(name_of(fn))
        if builder.holds_scalars:
            numpy_arrays.demand_same(self, fn, args, kwargs, result)
        if wrapped:
            demand_wrapped(result)
        added = additions(target.target, target.args, kwargs)
        changed = False
        for tensor, version in zip(tensors, versions, strict=True):
            if id(tensor) in written or has_changed(tensor, version, listener):
                self.note_mutated(tensor, added.get(id(tensor)))
                changed = True
        if not changed and result is not None and is_plain(result) and not self.symbols.is_new(result):
            return result
        if not holds_only_graph_values(result):
            raise graph_break("unsupported-call", f"{name_of(fn)}, which returns {type(result)}")
        if type(result) is FakeTensor and result.requires_grad and writes.is_leaf(result):
            self.has_leaves = True
            inference.demand_supported(self.regions, result)
        node = builder.add(target.op, target.target, node_args, node_kwargs)
        self.annotate(node)
        builder.bind(result, node)
        if self.selection is not None:
            self.selection.tag(node)
        self.counters.note_made(target.target, target.args, result)
        self.all_bound()
        return result

    def all_bound(self) -> None:
        """Tell torch's shape environment that the new symbols of the last operator have nodes."""
        if self.geometry.is_used:
            self.geometry.env.pending_fresh_unbacked_symbols.clear()

    def record_effect(self, fn: Callable[..., Any], args: Args) -> None:
        """Add a node for a call that has already run and that returns nothing."""
        self.annotate(self.builder.add("call_function", fn, args, {}))

    def annotate(self, node: torch.fx.Node) -> None:
        """Add the program's current location and modules to the metadata of a new node."""
        interp = self.trace.interp
        self.steps[node] = interp.root_step
        self.notes.annotate(node, interp.user_stack(), interp.module_stack())
        copy_custom(node, self.trace.objects.registry)

    def checkpoint(self, tag: str) -> AbstractContextManager[None]:
        """Tag every node that is recorded inside the context (``meta["recompute"]``)."""
        return self.notes.checkpoint(tag)

    def leave_checkpoint(self, values: object) -> None:
        for value in (leaf for leaf in tree_leaves(values) if isinstance(leaf, FakeTensor)):
            self.notes.leave_checkpoint(self.builder.node_of(value))

    def note_mutated(self, tensor: torch.Tensor, added: float | None = None) -> None:
        """Note a write to ``tensor``. ``added`` is the number that the write adds to each element, if any."""
        self.counters.note_changed(tensor, added)
        self.mutated_storages.add(storage := tensor.untyped_storage()._cdata)
        self.assumptions.note_written(storage)
        if self.wrappers.used and is_wrapper(tensor):
            self.wrappers.note_written(tensor)
        if storage in self.unwritable:
            raise graph_break("unsupported-object", self.unwritable[storage])

    def leave_as(self, tensor: torch.Tensor, finish: Callable[..., torch.Tensor]) -> None:
        """Let the replacement code apply ``finish`` to ``tensor`` if it leaves the graph."""
        self._finishes[id(tensor)] = finish

    def leaving(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor] | None]:
        """Return the graph output for a tensor, and the function that completes the output outside, or None."""
        # The function restores a freed history, the history of hidden leaves, a class, or inference mode.
        with self.unrecorded():
            spent = self.differentiated and tensor.requires_grad and gradients.has_freed_history(tensor)
            hidden = self.has_leaves and gradients.has_hidden_history(self, tensor)
        if spent:
            return self.record(torch.Tensor.detach, (tensor,), {}), gradients.with_freed_history
        if hidden:
            return tensor, gradients.with_hidden_history
        finish = inference.finish_of(tensor) if self.regions.used else None
        return tensor, finish or self._finishes.get(id(tensor))

    def construction_of(self, tensor: torch.Tensor) -> Construction | None:
        return self.wrappers.construction_of(tensor)

    # --- attributes ------------------------------------------------------------------------------

    def load_attr(self, tensor: torch.Tensor, name: str) -> Any:
        return attributes.load(self, tensor, name)

    def accessed(self, accessor: object, args: Args) -> Any:
        return attributes.accessed(self, accessor, args)

    def store_attr(self, tensor: torch.Tensor, name: str, value: object) -> None:
        attributes.store(self, tensor, name, value)

    def delete_attr(self, tensor: torch.Tensor, name: str) -> None:
        attributes.delete(self, tensor, name)

    # --- numbers ---------------------------------------------------------------------------------

    def is_symbolic(self, value: object) -> bool:
        return issubclass(type(value), SYMBOLIC)  # isinstance would read ``__class__`` of a dead weak proxy

    def counted(self, tensor: torch.Tensor) -> Any:
        """Return the number in a tensor as a symbol that a guard can read, else as an unbacked symbol."""
        number = self.counters.number(tensor)
        return self.number_in(tensor) if number is None else number

    def drawn_at(self, value: Any) -> Source | None:
        return self.geometry.drawn_at(value.node.expr)

    def number_in(self, tensor: torch.Tensor) -> Any:
        with self.geometry.env.scalar_outputs_allowed():
            return self.record(torch.Tensor.item, (tensor,), {})

    def open_truth(self, value: object) -> Any:
        return unbacked_extrema.open_truth(self, value)

    def parameter(self, data: object, requires_grad: bool) -> Any:
        return gradients.make_parameter(self, data, requires_grad)

    def extremum(self, fn: Callable[..., Any], first: object, second: object) -> Any:
        return unbacked_extrema.extremum(self, fn, first, second)

    def decided(self, truth: torch.SymBool) -> Any:
        return unbacked_extrema.decided(self, truth)

    def specialize(self, value: object) -> Any:
        return unbacked_extrema.specialized(self, value)

    # --- the whole trace -------------------------------------------------------------------------

    def function_mode(self) -> AbstractContextManager[object]:
        """Return a mode that records torch calls of C code. Break the graph if torch functions are disabled."""
        if torch_compat.is_torch_function_all_disabled():
            detail = "C code that may call torch, while torch functions are disabled"
            raise graph_break("unsupported-call", detail)
        return RecordingMode(self)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Run the whole trace. At the end, restore the global torch state that the program has changed."""
        self._set_memo(active=True)
        try:
            aside = self.overrides.session(self.outer_modes)
            regions = self.regions.session()
            with state.session(self.state), self.transforms.session(), aside, regions:
                if self.outer_modes and self._entry_state is not None:
                    self._guard_state(self._entry_state)
                yield
        finally:
            self._set_memo(active=False)

    def _set_memo(self, *, active: bool) -> None:
        """Turn the cache of symbolic nodes on or off. A shape environment that is made later gets the setting, too."""
        self._in_session = active
        if self.geometry.is_used:
            self.geometry.env.memo.active = active

    def state_delta(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the calls that change torch's state from the start of the trace to the present state."""
        wrapping, begin = self.regions.delta(self.state.entry)
        return wrapping + self.state.delta(begin) + self.overrides.delta()

    def finish(self, outputs: Sequence[Any]) -> CapturedCode:
        return finishing.finish(self, outputs)
