"""The events of a compilation session. ``graph`` is the number of a captured graph in its process, from 1."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_interchange.format.show import short_repr

VERSION = 1


class _Record:
    """Base of all records."""

    __slots__ = ()
    __repr__ = short_repr


@dataclass(frozen=True, slots=True, repr=False)
class Started(_Record):
    """A process began to record. ``rank``: the rank in a distributed job, or -1. ``started``: seconds of Unix time.

    ``machine``: the architecture, the number of CPUs and the number of torch's threads, as text for the report.
    """

    version: int
    process: int
    rank: int
    started: float
    command: tuple[str, ...]
    python: str
    torch: str
    fxstack: str
    machine: str


@dataclass(frozen=True, slots=True, repr=False)
class Guard(_Record):
    """A condition on the program's state under which an entry runs, as Python.

    ``needed_by``: the user's line, as ``file:line: text``. ``nanoseconds``: estimated time of one check.
    """

    text: str
    needed_by: str
    nanoseconds: int


@dataclass(frozen=True, slots=True, repr=False)
class Frame(_Record):
    """Capture has looked at a frame. ``graph`` is 0 if no operation was captured.

    ``verdict``: ``compiled``, ``plain`` (``why`` says why) or ``raises``. ``resumed``: the frame is the rest of a frame
    after a graph break. ``code``: the replacement code as text.
    """

    place: str
    file: str
    line: int
    name: str
    verdict: str
    why: str
    resumed: bool
    graph: int
    guards: tuple[Guard, ...]
    code: str


@dataclass(frozen=True, slots=True, repr=False)
class Line(_Record):
    """A line of a stack: the file, the line and the function."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, repr=False)
class Break(_Record):
    """A graph break: its reason (an id, see the error pages), why it ends the graph, how to avoid it, and where."""

    reason: str
    title: str
    why: str
    fix: str
    stack: tuple[Line, ...]


@dataclass(frozen=True, slots=True, repr=False)
class FailedGuard(_Record):
    """A guard that failed: what it demands of ``source`` and what it found, as phrases, and the line that needed it.

    For example ``demanded`` is "must be of type int" and ``found`` is "it is 3".
    """

    source: str
    demanded: str
    found: str
    needed_by: str


@dataclass(frozen=True, slots=True, repr=False)
class Recompilation(_Record):
    """A function was compiled again. ``failures`` has one failed guard for each entry, the newest entry first."""

    place: str
    failures: tuple[FailedGuard, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Operation(_Record):
    """A node of a graph. ``layout``: dtype and shape as text. ``bytes``: 0 if the value is no tensor.

    ``stack``: the program's lines, outermost first, without those of torch.
    """

    name: str
    target: str
    layout: str
    bytes: int
    stack: tuple[Line, ...]


@dataclass(frozen=True, slots=True, repr=False)
class GraphInput(_Record):
    """An input of a graph: its role, and where the caller finds it (for a parameter its path in the module)."""

    name: str
    role: str
    source: str
    layout: str


@dataclass(frozen=True, slots=True, repr=False)
class Symbol(_Record):
    """A symbolic size: the value at capture, its inclusive range, and where it comes from. -1: none, or no bound."""

    name: str
    hint: int
    lower: int
    upper: int
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class Source(_Record):
    """The source text of a function, from its first line."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Graph(_Record):
    """A graph as a stage has made it: ``captured``, ``functional``, ``joint``, ``forward`` or ``backward``.

    ``sources``: of a captured graph the functions of the program that it computes, called ones included.
    """

    graph: int
    place: str
    stage: str
    text: str
    inputs: tuple[GraphInput, ...]
    operations: tuple[Operation, ...]
    symbols: tuple[Symbol, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, repr=False)
class PassRun(_Record):
    """A pass has run. ``why``: the reason why it did nothing, or "". ``changes``: a unified diff, in records of reports."""

    graph: int
    place: str
    stage: str
    name: str
    seconds: float
    why: str
    changes: str


@dataclass(frozen=True, slots=True, repr=False)
class SavedValue(_Record):
    """A value that the forward keeps for the backward, the rule that decided, and the line that computes it."""

    name: str
    bytes: int
    rule: str
    line: str


@dataclass(frozen=True, slots=True, repr=False)
class RecomputedValue(_Record):
    """A value that the backward computes again: the chain of nodes from a saved value, and the cost."""

    name: str
    chain: tuple[str, ...]
    operations: int
    seconds: float
    line: str


@dataclass(frozen=True, slots=True, repr=False)
class Alternative(_Record):
    """The figures of another partitioner for the same joint graph: bytes, arithmetic operations, seconds."""

    partitioner: str
    saved_bytes: int
    peak_bytes: int
    recomputed_operations: int
    step_seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Moment(_Record):
    """One step of a memory timeline, and the bytes alive while it runs."""

    stage: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Cut(_Record):
    """The partition of a joint graph. ``timeline``: the predicted memory of a training step, operator by operator."""

    graph: int
    place: str
    saved: tuple[SavedValue, ...]
    recomputed: tuple[RecomputedValue, ...]
    timeline: tuple[Moment, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Alternatives(_Record):
    """The figures of other partitioners for the joint graph of ``graph``."""

    graph: int
    place: str
    rows: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Buffer(_Record):
    """A buffer of a kernel."""

    name: str
    written: bool
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Step(_Record):
    """A kernel, or a call of ATen (``kernel`` is False), in order of execution.

    ``origins``: the operators that it computes. ``stacks``: their stacks, each once. ``predicted``: seconds by the roofline
    model of this machine or GPU, and ``bound``, the resource that limits them.
    """

    name: str
    kernel: bool
    origins: tuple[str, ...]
    stacks: tuple[tuple[Line, ...], ...]
    buffers: tuple[Buffer, ...]
    read_bytes: int
    written_bytes: int
    operations: int
    predicted: float
    bound: str


@dataclass(frozen=True, slots=True, repr=False)
class RefusedFusion(_Record):
    """Two groups of operators that are not in one kernel, with the rule that forbids it.

    ``first`` and ``second`` are the name of the first tensor of each group.
    """

    first: str
    second: str
    rule: str


@dataclass(frozen=True, slots=True, repr=False)
class Program(_Record):
    """The compiled code of a graph; ``role`` is ``forward``, ``backward`` or ``inference``.

    ``kernels``: C or Triton. ``host``: the program that runs them. ``arena_bytes``: memory that is kept between calls.
    ``memory``: memory of one call, step by step, on a CPU. ``bandwidth``: bytes per second of this machine or GPU.
    """

    graph: int
    place: str
    role: str
    kernels: str
    host: str
    steps: tuple[Step, ...]
    refused: tuple[RefusedFusion, ...]
    arena_bytes: int
    memory: tuple[Moment, ...]
    bandwidth: float


@dataclass(frozen=True, slots=True, repr=False)
class StepTime(_Record):
    """The measured seconds of a step of a program."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Measured(_Record):
    """One call of a program with a clock around each step. ``seconds``: the whole call."""

    graph: int
    role: str
    seconds: float
    steps: tuple[StepTime, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Allocated(_Record):
    """The bytes that torch has allocated in a call and not freed, ``seconds`` after its begin."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredMemory(_Record):
    """One call of a program, with each change of its allocated memory. The arena of earlier calls is not counted."""

    graph: int
    role: str
    moments: tuple[Allocated, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Looked(_Record):
    """A program was looked up in the cache on disk."""

    graph: int
    found: bool


@dataclass(frozen=True, slots=True, repr=False)
class Region(_Record):
    """A region of a graph. ``calls`` calls share its body of ``nodes`` operators, unless ``refusal`` says why not.

    ``automatic``: the region is a repeated part of the graph, not a function of ``nested_compile_region``.
    """

    graph: int
    place: str
    name: str
    calls: int
    nodes: int
    automatic: bool
    refusal: str


@dataclass(frozen=True, slots=True, repr=False)
class Spent(_Record):
    """A stage has worked for ``seconds`` on a graph."""

    graph: int
    place: str
    stage: str
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Ended(_Record):
    """The process ended in order. ``seconds``: since ``Started``. ``peak_bytes``: the peak of its memory."""

    seconds: float
    peak_bytes: int


Body = (
    Started
    | Frame
    | Break
    | Recompilation
    | Graph
    | PassRun
    | Cut
    | Alternatives
    | Program
    | Measured
    | MeasuredMemory
    | Looked
    | Region
    | Spent
    | Ended
)


@dataclass(frozen=True, slots=True, repr=False)
class Event(_Record):
    """One line of a record: seconds since the start of the process's record, the thread, and the event."""

    time: float
    thread: str
    body: Body
