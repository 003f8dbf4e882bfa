"""Protocols of the parts of a trace: what each part offers to the others. Each part is one folder of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import CellType, CodeType, FunctionType

    import torch

    from fxstack_capture.sources import Source
    from fxstack_capture.trace.records import (
        AttributeWrite,
        CapturedCode,
        Construction,
        DeferredLocal,
        Link,
        RootOutcome,
    )

    Request = tuple[Any, tuple[Any, ...]]


class AppendOnly(Protocol):
    """Lists of the program that the trace has not read yet: the program only adds to them."""

    def __contains__(self, proxy: object) -> bool: ...

    def added(self, proxy: Any) -> tuple[Any, ...]:
        """Return what the program has added to an unread list."""

    def enter(self, obj: object, source: Source) -> list[Any] | None:
        """Return the proxy of a list, unread where possible; None for any other object."""

    def in_attribute(self, obj: object, name: str) -> list[Any] | None: ...

    def in_cell(self, cell: CellType) -> list[Any] | None: ...

    def in_globals(self, namespace: dict[str, object], name: str) -> list[Any] | None: ...

    def item(self, proxy: list[Any], key: object) -> Any:
        """Read one item alone. Return NULL, and read the whole list, where one item cannot be read alone."""

    def lazily(self, value: object) -> list[Any] | None:
        """Return the unread list that a slot or cell holds."""

    def length(self, proxy: list[Any]) -> Any:
        """Return the length: a symbol once the length has changed between calls."""

    def expand(self, proxy: list[Any]) -> None:
        """Read the list: put its items in front of the added ones."""


class Iterators(Protocol):
    """Partially consumed iterators of the program."""

    def __contains__(self, obj: object) -> bool: ...

    def __len__(self) -> int: ...

    def add(self, obj: object, source: Source) -> None:
        """Enter ``obj`` as itself. Iterators of known types can be read without advancing them."""

    def advances(self) -> Iterator[tuple[Source, int]]:
        """Return the number of items to take from each real iterator; an ``enumerate`` comes first."""

    def asked_by(self, obj: object) -> tuple[Any, ...]:
        """Return the function of a ``map`` or ``filter`` and the iterators that it reads. Raises GraphBreak."""

    def enter(self, obj: Any, source: Source) -> Any:
        """Enter an iterator that another iterator reads. Raises GraphBreak if it cannot be read."""

    def entered(self, item: Any) -> Any:
        """Return the proxy of an item."""

    def next(self, obj: object) -> Any:
        """Return the next item, not entered. Raises StopIteration, GraphBreak."""


class Arrays(Protocol):
    """NumPy arrays of the trace."""

    has_scalars: bool
    """Whether there are NumPy scalars that change from call to call."""

    def about(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what NumPy says about the types of its arguments; raises NumPy's exceptions."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy, or an operator on arrays."""

    def from_tensor(self, tensor: torch.Tensor) -> Any:
        """Return the array over the memory of a dense CPU tensor of the trace, of a dtype that NumPy has."""

    def iterate(self, array: Any) -> Iterator[Any]: ...

    def refuse(self, what: str) -> NoReturn: ...


class TorchNames(Protocol):
    """The functions of torch whose meaning the trace relies on."""

    def is_usual(self, fn: FunctionType) -> bool:
        """Whether a Python function of torch is unchanged since import; guards what the function reads."""


class AssumedTruths(Protocol):
    """Truth values of tensors that the trace assumes and the graph checks."""

    allowed: bool
    ends_at_handlers: bool
    """Whether the graph ends at calls that may raise for their data where the program handles errors."""

    handled: bool
    """Whether the graph has a call that may raise where the program handles errors."""

    @property
    def passed(self) -> torch.Tensor | None: ...

    @property
    def retractable(self) -> bool:
        """Whether a graph that has run or raised leaves no traces once torch's state is restored."""

    @property
    def draws(self) -> bool:
        """Whether the graph draws random numbers. Known when the trace is done."""

    def demand_retractable(self) -> None:
        """Raise RefusedError where running the graph leaves traces."""


class Objects(Protocol):
    """Mirrors of pre-existing objects (subpackage ``objects``)."""

    @property
    def append_only(self) -> AppendOnly:
        """Lists that the program only adds to."""

    @property
    def iterators(self) -> Iterators:
        """Iterators that were begun outside."""

    opaque: set[int]
    """Ids of pre-existing objects that may be handed on but not looked into (iterators, for one)."""

    def enter(self, obj: object, source: Source) -> Any:
        """Bring a pre-existing object in: guard what is looked at, return its stand-in (idempotent by identity)."""

    def source_of(self, obj: object) -> Source | None:
        """Source of a stand-in (or of a pre-existing function, class, module that entered as itself)."""

    def original_of(self, obj: object) -> Any:
        """The pre-existing object behind a stand-in; the object itself when it entered as itself or is new."""

    def is_preexisting(self, obj: object) -> bool:
        """True when ``obj`` is a stand-in or entered as itself; False for objects made during the trace."""

    def load_attr(self, obj: object, name: str) -> Any:
        """CPython's full attribute protocol on a trace-world object; raises the real AttributeError."""

    def load_special(self, obj: object, name: str) -> Any:
        """A special method as CPython finds it: on the type, past the instance, bound; AttributeError if missing."""

    def store_attr(self, obj: object, name: str, value: object) -> None: ...

    def delete_attr(self, obj: object, name: str) -> None: ...

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        """LOAD_GLOBAL; raises the real NameError. ``namespace`` is a function's real ``__globals__``."""

    def store_global(self, namespace: dict[str, object], name: str, value: object) -> None: ...

    def delete_global(self, namespace: dict[str, object], name: str) -> None: ...

    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        """(defaults, keyword defaults, closure) of a function in trace-world terms: entered and mirrored when pre-existing."""

    def load_cell(self, cell: CellType) -> Any:
        """Content of a mirrored or new cell; raises ValueError when empty."""

    def store_cell(self, cell: CellType, value: object) -> None: ...

    def note_new(self, obj: object) -> None:
        """Say that ``obj`` (a function, class, cell, ...) was made during the trace."""

    def note_compared(self, left: object, right: object) -> None:
        """Say that the program asked whether two different objects are the same (they must stay different)."""

    def note_answers(self, kind: type, classes: Any) -> None:
        """Say that the program was told whether ``kind`` is a subclass of ``classes``, the second argument of ``issubclass``."""

    def is_new(self, obj: object) -> bool:
        """Whether ``obj`` was announced by ``note_new``."""

    def made_at(self, obj: object) -> int | None:
        """The step of the root frame during which a new class was made."""

    def has_other_keys(self, mapping: dict[Any, Any]) -> bool:
        """Whether a dictionary of the outside will have other keys, or another order of them, when the frame is left."""

    def close(self) -> None:
        """Record the guards that are collected until the end of a trace."""

    def expand(self, obj: object) -> None:
        """Materialise a lazy stand-in (dict, object) so that C code may look inside it."""


class Calls(Protocol):
    """Who runs a call: a rule, the interpreter, torch's recorder or CPython (subpackage ``calls``)."""

    scanned: dict[type, int]
    """What ``calls.scan`` knows of classes."""

    def call(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call any trace-world callable. Raises what the program raises, or GraphBreak."""

    def call_back(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As ``call``, for C code, which may take an exception for an answer: only the program's come out."""

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As ``call``, where the result is that of the step of the current frame: the graph may break inside of it."""

    def request(self, what: str, *operands: Any) -> Request | None:
        """The Python function, with its arguments, that does what C code would do (``calls.polyfills``); None to leave it."""

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a C function for real on trace-world objects; Python frames that it starts come back to the interpreter."""

    def watched(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a C function; Python frames that it starts (``__hash__`` of an item) are interpreted."""

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        """Ends the graph where hashing or comparing ``keys``, which the block does, has effects (``calls.rehashing``)."""

    def special_method(self, obj: object, name: str) -> Any:
        """The Python function that does what ``obj[...]`` or ``obj.name = ...`` asks of the class of ``obj``, or None."""

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        """A function of module ``operator`` of two operands (add, iadd, lt, is_not excluded, contains, getitem, ...)."""

    def unary(self, op: Callable[[Any], Any], value: object) -> Any: ...

    def truth(self, value: object) -> bool:
        """``bool(value)`` as a jump sees it; GraphBreak for tensors."""

    def iterate(self, value: object) -> Any:
        """``iter(value)``: a real iterator object of the trace world."""

    def next(self, iterator: object) -> Any:
        """``next(iterator)``; raises StopIteration."""


class TorchSide(Protocol):
    """Tensors, symbolic numbers, the FX graph (subpackage ``torch_side``)."""

    @property
    def arrays(self) -> Arrays:
        """NumPy arrays of the trace."""

    @property
    def names(self) -> TorchNames:
        """What of torch's own names the trace relies on."""

    attribute_writes: list[AttributeWrite]
    """What the program assigned to attributes of tensors, in order."""

    mutated_storages: set[int]
    """Addresses of the memory that tensor operators have written to."""

    outer_modes: Sequence[Any]
    """Torch-function modes of the program that were on outside and are set aside while tracing."""

    def enter_tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Fake stand-in of a real tensor, guarded; its placeholder is made when an operation first uses it."""

    def enter_number(self, value: float, source: Source) -> Any:
        """An int or float argument or attribute: itself (guarded by value), or a SymInt/SymFloat if dynamic."""

    def is_leaf(self, fn: object) -> bool:
        """Whether calls of ``fn`` are recorded as one node instead of being inlined."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one torch-level call and return its fake result (in-place operators return the same object)."""

    def accessed(self, accessor: Any, args: tuple[Any, ...]) -> Any:
        """A call of ``Tensor.attr.__get__``, ``__set__`` or ``__delete__``."""

    def made_of(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]] | None:
        """For a tensor of a user's class made in the trace: of which one, and how plain code makes it."""

    def construction_of(self, tensor: torch.Tensor) -> Construction | None:
        """For a wrapper subclass that the program made in the trace: the call that made it."""

    def load_attr(self, tensor: torch.Tensor, name: str) -> Any:
        """Attribute of a tensor: metadata is read off the fake tensor, tensors are recorded, methods are bound methods."""

    def store_attr(self, tensor: torch.Tensor, name: str, value: object) -> None: ...

    def is_symbolic(self, value: object) -> bool:
        """SymInt, SymFloat or SymBool."""

    def guard_flag(self, getter: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        """Guard what ``getter``, a C function, gives."""

    def drawn_at(self, value: Any) -> Source | None:
        """Where a symbolic number is found that the frame draws anew in every call; None for others."""

    def number_in(self, tensor: torch.Tensor) -> Any:
        """``tensor.item()`` as an unbacked symbol, whether or not the options ask for these."""

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        """``torch.nn.Parameter(data, requires_grad)``."""

    def function_of(self, fn: Callable[[Any], Any], number: Any) -> Any:
        """``fn`` of a symbolic number that an input holds, as another input; None where that cannot be."""

    def place_of(self, number: Any) -> Source | None:
        """Where a symbolic number is found, or computed of one that is, before the frame runs; None where that cannot be."""

    def open_truth(self, value: Any) -> Any:
        """``bool(value)`` as a symbol, where tracing does not know it and may leave it open; else None."""

    def extremum(self, fn: Callable[..., Any], first: Any, second: Any) -> Any:
        """``min`` or ``max`` of two numbers, at least one of which is symbolic."""

    def counted(self, tensor: torch.Tensor) -> Any:
        """As ``number_in``; what a small tensor of the host held at first is read by guards."""

    def tagged(self, key: str, tag: object) -> AbstractContextManager[None]:
        """Inside, every node that is recorded has ``meta[key] = tag``."""

    def untag(self, key: str, values: object) -> None:
        """Take the tag off the nodes that compute ``values`` (a tensor, or a container of such)."""

    def assume(self, value: torch.Tensor, *, truth: bool) -> bool:
        """Go on as if ``bool(value)`` were ``truth``, to be checked when the graph has run; False if that is impossible."""

    @property
    def assumptions(self) -> AssumedTruths:
        """What was assumed so."""

    def decided(self, truth: torch.SymBool) -> Any:
        """``truth`` as a bool, guarded, where tracing knows it: what asks for a bool, in C or by identity, takes no other."""

    def specialize(self, value: Any) -> Any:
        """The plain number behind a symbolic one, with the guard that this needs."""

    def function_mode(self) -> AbstractContextManager[object]:
        """While C code runs: torch calls made by it on trace tensors are recorded."""

    def python_type(self, tensor: torch.Tensor) -> type:
        """The type a user sees for a stand-in tensor (Tensor, Parameter, ...)."""

    def source_of(self, tensor: torch.Tensor) -> Source | None:
        """Where the real tensor behind a stand-in was found; None for results of operations."""

    def session(self) -> AbstractContextManager[object]:
        """Around the whole trace: torch state that the program changes is put back at the end."""

    def state_delta(self) -> Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Calls that bring torch's state from what it was when the trace began to what it is now."""

    def leaving(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor] | None]:
        """What the graph gives for a tensor of the trace, and what plain code must then do to it."""

    def finish(self, outputs: Sequence[Any]) -> CapturedCode:
        """Close the graph: ``outputs`` are trace tensors and symbolic numbers, in order."""


class Interpreter(Protocol):
    """The bytecode interpreter (subpackage ``interpreter``)."""

    def call_function(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind arguments and interpret a Python function's body (generators give a trace generator)."""

    def call_linked(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], link: Link) -> Any:
        """As ``call_function``, for a call whose result is that of the current step."""

    def run_root(
        self,
        fn: FunctionType,
        code: CodeType,
        local_values: dict[str, DeferredLocal],
        stop_at: tuple[int, ...] | None,
    ) -> RootOutcome:
        """Interpret the root frame; ``stop_at`` is the ``path`` of a GraphBreak: stop before that step."""

    def catches(self) -> bool:
        """Whether code of the program receives what the current step raises."""

    def raises(self, error: BaseException) -> bool:
        """Whether ``error`` has come out of a frame of the program."""

    def demand_program(self, error: BaseException) -> None:
        """Raise GraphBreak if ``error`` is not the program's."""

    def dealt_with(self, error: BaseException) -> None:
        """Say that a rule takes ``error`` for an answer. Raises GraphBreak if it is not the program's."""

    @property
    def handles(self) -> bool:
        """Whether code that ran so far may handle exceptions."""

    @property
    def root_step(self) -> int:
        """Number of the step of the root frame that is being executed."""

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """(file, line, function) of the interpreted frames, innermost last."""

    def module_stack(self) -> dict[str, tuple[str, str]]:
        """Path and class of the modules whose ``forward`` runs, by expressions for them, innermost last."""
