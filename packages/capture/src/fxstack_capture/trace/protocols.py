"""Protocols of the torch side and the interpreter, for callers in lower folders.

The classes that implement the protocols import this folder, so this folder cannot import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FunctionType
from typing import Any, NoReturn, Protocol

import torch
from torch import fx

from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.sources import Source
from fxstack_capture.trace.records import (
    AttributeWrite,
    CapturedCode,
    Construction,
    DeferredLocal,
    Link,
    RootOutcome,
)


class Arrays(Protocol):
    """NumPy arrays of the trace: tensors behind NumPy's functions (subpackage ``torch_side.arrays``)."""

    @property
    def tracer(self) -> TorchSide:
        """The torch side of the trace."""

    @property
    def objects(self) -> Any:
        """The object model (``trace.state.Objects``)."""

    has_scalars: bool
    """Whether the trace has NumPy scalars with a dynamic number.

    If not, operators do not look for such scalars among their operands.
    """

    def about(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function that reads only the types of its arguments, such as ``np.result_type``.

        Raises NumPy's exceptions.
        """

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function of the program, or apply an operator to arrays.

        Rules, and the methods of ``Array``, call this.
        """

    def from_tensor(self, tensor: torch.Tensor, *, writeable: bool = True) -> Any:
        """Return the array that shares the memory of ``tensor``, a dense CPU tensor with a NumPy dtype.

        Called when an array from outside is wrapped, and for ``Tensor.numpy()`` in the program.
        """

    def run(self, pair: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function through its counterpart for tensors.

        ``pair`` (``numpy_side.functions.Pair``) contains the function and its counterpart.
        """

    def text(self, fn: Callable[..., str], array: Any, *spec: str) -> str:
        """Call ``fn``, which is ``str``, ``repr`` or ``format``, on an array or a scalar.

        ``spec`` is the second argument of ``format``. The text of an array reads its elements, so most texts
        break the graph.
        """

    def iterate(self, array: Any) -> Iterator[Any]:
        """Return an iterator over the rows of an array. Called for ``iter`` in the program and in C code."""

    def refuse(self, use: str) -> NoReturn:
        """Raise the graph break for an unsupported use of an array.

        ``use`` is the description of the use in the message.
        """


class AssumedTruths(Protocol):
    """Truth values of tensors that the trace assumes and the graph computes, and facts that decide about a
    fallback.
    """

    handled_calls: dict[tuple[tuple[int, int], ...], tuple[int, int]]
    """The calls that may raise because of tensor data, where the program handles errors.

    The key is the blocks around the calls. The value is a pair of numbers: of the first and of the last such
    call. All calls that may raise because of tensor data are numbered from 1.
    """

    @property
    def handled(self) -> bool:
        """Whether the graph has a call that may raise because of tensor data, where the program handles
        errors.
        """

    @property
    def operators(self) -> frozenset[fx.Node]:
        """The nodes of the graph so far that are no inputs and set no state of torch."""

    @property
    def passed(self) -> torch.Tensor | None:
        """A tensor of the graph that is true if all assumptions hold, or None without assumptions."""

    @property
    def retractable(self) -> bool:
        """Whether a graph that ran or raised leaves no side effects after torch's state is restored.

        The fallback to eager requires this, because it runs the frame a second time
        (``emit.endings.fallback``).
        """

    @property
    def draws(self) -> bool:
        """Whether the graph draws random numbers. The answer is final only at the end of the trace."""

    def demand_retractable(self) -> None:
        """Raise RefusedError if running the graph has side effects that cannot be undone.

        Called only if the graph has assumptions.
        """


class TorchSide(Protocol):
    """Tensors, symbolic numbers and the FX graph (subpackage ``torch_side``).

    Rules and object loads call it for each value that is a tensor or contains a tensor.
    """

    @property
    def arrays(self) -> Arrays:
        """NumPy arrays of the trace."""

    @property
    def storages(self) -> Any:
        """The storages that the program has read (``rules.storages.Storages``)."""

    @property
    def is_usual(self) -> Callable[[FunctionType], bool]:
        """A function that returns whether a Python function of torch is unchanged since import.

        The call guards the names that the function of torch reads.
        """

    attribute_writes: list[AttributeWrite]
    """The program's assignments to attributes of tensors, in order. The replacement code repeats them."""

    mutated_storages: set[int]
    """Addresses of the storages that tensor operators have written to in this trace."""

    outer_modes: Sequence[Any]
    """The program's torch-function modes that were active when the frame was called.

    They are suspended while tracing.
    """

    def enter_tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Return the fake of a real tensor, and guard the tensor.

        Called when a tensor from outside is wrapped. The first operation on the fake makes the placeholder in
        the graph.
        """

    def enter_number(self, value: float, source: Source) -> Any:
        """Wrap an int or float input.

        Called when a number from outside is read. A dynamic input becomes a SymInt or SymFloat. Any other
        input is guarded by value and returned as it is.
        """

    @property
    def geometry(self) -> Geometry:
        """The maker of symbols. It also has the expression that each number of an input must equal."""

    @property
    def history(self) -> FrameHistory:
        """The values that earlier traces of the code have seen. Numbers that have changed since become symbolic."""

    @property
    def overrides(self) -> Any:
        """State of ``__torch_function__`` overrides (``subclasses.overrides.Overrides``)."""

    def is_leaf(self, fn: object) -> bool:
        """Return whether calls of ``fn`` are recorded as one node.

        All other Python functions are inlined: the interpreter runs them.
        """

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one torch call as a node and return its fake result.

        An in-place operator returns its argument.
        """

    def accessed(self, accessor: Any, args: tuple[Any, ...]) -> Any:
        """Call an accessor: ``__get__``, ``__set__`` or ``__delete__`` of an attribute descriptor of
        ``Tensor``.

        Called when the program or a ``__torch_function__`` calls the accessor as a function.
        """

    def construction_of(self, tensor: torch.Tensor) -> Construction | None:
        """Return the call that constructed a wrapper subclass tensor in the trace, or None.

        Code that rebuilds the tensor repeats the call.
        """

    def load_attr(self, tensor: torch.Tensor, name: str) -> Any:
        """Load an attribute of a tensor.

        Metadata comes from the fake. A load that computes a tensor is recorded as a node. A method becomes a
        bound method.
        """

    def store_attr(self, tensor: torch.Tensor, name: str, value: object) -> None:
        """Assign an attribute of a tensor, as an instruction of the program does it."""

    def is_symbolic(self, value: object) -> bool:
        """Whether ``value`` is a SymInt, SymFloat or SymBool."""

    def guard_flag(self, getter: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        """Guard the result of ``getter(*args)``, a flag of torch such as ``torch.is_grad_enabled()``.

        Called where the trace depends on the flag. ``getter`` is a C function, so the guard runs no Python
        code.
        """

    def drawn_at(self, value: object) -> Source | None:
        """Return the source of a symbolic number that the frame draws in each call. None for any other
        number.

        The replacement code reads a drawn number from its source and not from the graph.
        """

    def number_in(self, tensor: torch.Tensor) -> Any:
        """Return ``tensor.item()`` as an unbacked symbol, even if the options forbid ``item``."""

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        """Call ``torch.nn.Parameter(data, requires_grad)`` in the trace. The rule of ``Parameter`` calls this."""

    def function_of(self, fn: Callable[[Any], Any], number: Any) -> Any:
        """Return the result of ``fn`` for a symbolic number as an additional input of the graph. None if this
        is impossible.

        ``fn`` is a C function without effects, such as ``math.sqrt``. The replacement code computes the
        result before the graph runs. This is possible if the number is computed from a single input.
        """

    def place_of(self, number: Any) -> Source | None:
        """Return the source of a symbolic number that is an input or is computed from inputs. None for any
        other number.

        The replacement code can read the number from this source before the graph runs, for example as an
        index.
        """

    def open_truth(self, value: object) -> Any:
        """Return ``bool(value)`` as a SymBool if its value is unknown and the options allow it. Otherwise
        return None.

        The rule of ``bool`` calls this first. If the answer is None, the rule tests the truth.
        """

    def extremum(self, fn: Callable[..., Any], first: Any, second: Any) -> Any:
        """Return ``min`` or ``max`` (``fn``) of two numbers or tensors that the graph computes.

        Return ``NotImplemented`` for other operands. Python then compares them.
        """

    def counted(self, tensor: torch.Tensor) -> Any:
        """Return the number in a tensor, for arithmetic in torch's own code (step counts of optimizers, batch
        norm).

        The number is known if a constructor determines it, or a CPU float input that guards read. Otherwise
        the result is that of ``number_in``.
        """

    def checkpoint(self, tag: str) -> AbstractContextManager[None]:
        """Set ``meta["recompute"] = tag`` on each node that is recorded inside the block.

        The block surrounds the function of a checkpoint.
        """

    def leave_checkpoint(self, values: object) -> None:
        """Remove the tag from the nodes that compute ``values``, the results of a checkpoint.

        ``values`` is a tensor or a container of tensors. The partitioner decides whether to recompute them.
        """

    def assume(self, value: torch.Tensor, *, truth: bool) -> bool:
        """Assume that ``bool(value)`` is ``truth``. Return False if the assumption is impossible.

        Called for a check of the program, whose other outcome only raises. The replacement code tests the
        assumption after the graph has run.
        """

    @property
    def assumptions(self) -> AssumedTruths:
        """The truth values that ``assume`` has assumed. The replacement code tests them."""

    def decided(self, truth: torch.SymBool) -> Any:
        """Return ``truth`` as a bool, with a guard, if the trace can know its value. Otherwise return the
        SymBool.

        Called before C code gets the value, because C code and identity comparisons need a bool.
        """

    def specialize(self, value: object) -> Any:
        """Return the plain number of a symbolic number and guard it.

        Any other value is returned unchanged. Called where a result depends on the value, for example before
        C code reads a number.
        """

    def function_mode(self) -> AbstractContextManager[object]:
        """While the block runs, record the torch calls that C code makes on fakes of the trace.

        The tracer enters the block around calls of C functions.
        """

    def python_type(self, tensor: torch.Tensor) -> type:
        """Return the type that the program sees for a fake (Tensor, Parameter, ...).

        The fake itself has another class.
        """

    def source_of(self, tensor: torch.Tensor) -> Source | None:
        """Return the source of the real tensor that a fake represents. None for the result of an operation."""

    def session(self) -> AbstractContextManager[object]:
        """Surround the whole trace. At the end, restore the torch state that the program changed."""

    def state_delta(self) -> Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the calls that set torch's state to the state that the program left.

        Each call is (function, arguments), for example (``set_grad_enabled``, (False,)). They start from the
        state at the start of the trace. The replacement code makes them after the graph.
        """

    def leaving(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor] | None]:
        """Return the graph output for ``tensor``, and a function that makes the final tensor from this
        output, or None.

        Called for each tensor that leaves the trace. The replacement code calls the function.
        """

    def finish(self, outputs: Sequence[Any]) -> CapturedCode:
        """Finish the graph after the last instruction.

        ``FrameWriter.finish`` calls this once. ``outputs`` are the fakes and symbolic numbers that leave the
        trace, in order.
        """

    def unrecorded(self) -> AbstractContextManager[None]:
        """Do not record torch calls inside the block.

        The tracer uses it for its own calls, such as reading the size of a fake. They are not operations of
        the program.
        """

    @property
    def mode(self) -> AbstractContextManager[Any]:
        """The fake-tensor mode of the trace. C code and torch functions on fakes run under it."""


class Interpreter(Protocol):
    """The bytecode interpreter (subpackage ``interpreter``).

    It runs the code of the program on objects of the trace.
    """

    tracing: bool
    """Whether the trace is running. False while the trace is being finished or abandoned."""
    return_lines: dict[CodeType, int] | None
    """Where the functions called so far have returned, by their code. None outside of nested graphs."""

    def current_frame(self) -> Any:
        """Return the innermost interpreted frame (``interpreter.frame.Frame``).

        Rules read its globals and its position.
        """

    def truth_of_result(self, value: object) -> bool:
        """Return the truth of ``value``, the result of the current instruction.

        The rules of truth tests call this. If ``value`` is a tensor and one truth only leads to a ``raise``,
        assume the other truth (``interpreter.checks``).
        """

    def call_function(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind arguments and interpret the body of a Python function.

        For a generator function, return a trace generator.
        """

    def call_linked(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], link: Link) -> Any:
        """Call ``fn`` as ``call_function`` does. In addition, the graph can break inside of ``fn`` and resume
        there.

        The result of ``fn`` must be the result of the current instruction, as ``link`` describes.
        """

    def run_root(
        self,
        fn: FunctionType,
        code: CodeType,
        local_values: dict[str, DeferredLocal],
        stop_at: tuple[int, ...] | None,
    ) -> RootOutcome:
        """Interpret the root frame once.

        ``local_values`` has the arguments and free variables by name. ``stop_at`` is the ``path`` of the
        GraphBreak of an earlier attempt: the interpreter stops before that step. With None, it runs to the
        end.
        """

    def receivers(self) -> tuple[tuple[int, int], ...]:
        """Return a key for the program's blocks that can act on an exception of the current instruction.

        The innermost block is first. Each block is (id of the code object, offset). See
        ``trace.records.Blocks``.
        """

    def raises(self, error: BaseException) -> bool:
        """Whether ``error`` has left a frame of the program. If not, it is an error of C code or of the
        tracer.
        """

    def demand_program(self, error: BaseException) -> None:
        """Raise GraphBreak if the program did not raise ``error``. Called before the program can see
        ``error``.

        An error of the tracer may not occur in plain Python.
        """

    def dealt_with(self, error: BaseException) -> None:
        """Record that a rule handles ``error``, as ``hasattr`` handles an AttributeError.

        Raises GraphBreak if the program did not raise ``error``.
        """

    @property
    def handles(self) -> bool:
        """Whether the program's code that has run so far may handle exceptions.

        If so, a fallback leaves errors of the graph to that code.
        """

    @property
    def root_step(self) -> int:
        """Number of the root frame's current step in order of execution, from 0.

        Repetitions in a loop count. A graph break records the number, so that a later attempt can stop there.
        """

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """Return (file, line, function) of the interpreted frames, innermost last.

        Guards, graph nodes and messages record this stack.
        """

    def module_stack(self) -> dict[str, tuple[str, str]]:
        """Return the modules whose ``forward`` runs now, innermost last: expression -> (path, class name).

        An expression is for example ``L['self'].layer``. The ``meta`` of nodes contains this dictionary.
        """

    def run_body(self, fn: FunctionType, namespace: object) -> Any:
        """Run the body of a class statement in ``namespace``, before the metaclass makes the class.

        The rule of ``exec`` runs its code in the same way.
        """
