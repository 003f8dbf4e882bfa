"""Record a compiled call as a CUDA graph and replay it: one launch for the whole call (``mode="reduce-overhead"``).

A recording reads and writes fixed addresses. Inputs that come at the same few addresses (parameters, what other recordings
return, of which a program that holds its last results keeps two going) are read where they are; the rest are copied to where the
recording expects them. Results lie in memory
of the recording, and the next replay overwrites them: so a recording is replayed only when nobody holds its last results any
more, and otherwise another recording is made, or, after ``MOST`` of them, the call runs without one. Results are
therefore always the caller's own, as in eager.

What waits for a replay is known only to the stream that it was launched on, so each stream has recordings of its own.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor import torch_compat

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[Any, ...]]
    Capture = Callable[[Callable[[], tuple[Any, ...]]], tuple[tuple[Any, ...], Callable[[], None]]]
    """Records what a function does on the device: its results, and what does it again."""

# Limits: a result that is dropped while another stream (record_stream) still reads it is not waited for. A
# graph that waits for the device, touches CPU tensors or spans devices is not recorded, and says why.

MOST = 8
"""Recordings of one graph."""
PLACES = 2
"""Addresses of one input for which there are recordings of their own."""
KNOWN = 64
"""Sizes, numbers and streams whose last addresses are remembered."""
SMALL = 1 << 16
"""Results of at most so many bytes are copied out, which is cheaper than another recording."""
COPIED = 4
"""Results that are copied out at most: the first ones, which a program may keep; what a backward needs comes behind them."""
_PLACE = "cuda"
_RECORDING = threading.RLock()
"""One thread records at a time: another's wait for the device would end the recording."""


@dataclass(frozen=True)
class Window:
    """A result that is (a view of) the input number ``source``: it is taken from the input of each call."""

    source: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    shift: int

    def of(self, owner: torch.Tensor) -> torch.Tensor:
        same = tuple(owner.shape) == self.shape and owner.stride() == self.stride
        if same and self.shift == 0:
            return owner
        start = owner.storage_offset() + self.shift
        return torch.as_strided(owner, self.shape, self.stride, start)


@dataclass(frozen=True)
class Result:
    """One result: a tensor in the recording's memory, a window of an input, or a plain value."""

    value: Any
    small: bool = False

    def give(self, args: tuple[Any, ...]) -> Any:
        if isinstance(self.value, Window):
            return self.value.of(args[self.value.source])
        if not isinstance(self.value, torch.Tensor):
            return self.value
        return self.value.clone() if self.small else self.value.detach()


@dataclass
class Recording:
    """One recorded call: addresses of the inputs that it reads in place, by position, and its copies of the others.

    It holds no input: what another recording returned must become free again.
    """

    addresses: dict[int, int]
    owned: dict[int, torch.Tensor]
    results: tuple[Result, ...]
    replay: Callable[[], None]
    storages: tuple[Any, ...] = ()
    counts: tuple[int, ...] = ()
    """How often each storage of results is held by the recording itself."""

    def __post_init__(self) -> None:
        held = {
            r.value.untyped_storage()._cdata: r.value.untyped_storage()
            for r in self.results
            if isinstance(r.value, torch.Tensor) and not r.small
        }
        self.storages = tuple(held.values())
        self.counts = tuple(_uses(s) for s in self.storages)

    def free(self) -> bool:
        """Whether nobody else holds a result of the last replay."""
        pairs = zip(self.storages, self.counts, strict=True)
        return all(_uses(storage) <= count for storage, count in pairs)

    def moved(self, addresses: dict[int, int]) -> bool:
        """Whether an input that is read in place is not where it was."""
        return any(address != addresses[k] for k, address in self.addresses.items())

    def run(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        for k, copy in self.owned.items():
            copy.copy_(args[k])
        self.replay()
        return tuple(result.give(args) for result in self.results)


def _uses(storage: Any) -> int:
    return int(torch_compat.storage_Use_Count(storage._cdata))


@dataclass
class GraphedCall:
    """``call`` through recordings. ``mutated`` are the positions of inputs that it writes, which are never copied."""

    call: Call
    capture: Capture
    mutated: frozenset[int] = frozenset()
    symbolic: bool = False
    """Whether sizes are arguments, so that recordings are for one set of sizes each."""
    stream: Callable[[], int | None] = lambda: 0
    """The stream of the call; None where the program is recording it, into a graph of its own."""
    recordings: dict[Any, list[Recording]] = field(default_factory=dict)
    seen: dict[Any, dict[int, int]] = field(default_factory=dict)
    """Addresses of the last call, by sizes."""
    places: dict[int, set[int]] = field(default_factory=dict)
    """Addresses of inputs, but for those of first calls, by position."""
    restless: set[int] = field(default_factory=set)
    """Inputs that have been at more than ``PLACES``."""
    attempts: int = 0
    lock: Any = field(default_factory=threading.RLock)
    """Between a replay and the handing out of its results nobody may replay it again."""

    def __call__(self, *args: object) -> tuple[Any, ...]:
        stream = self.stream()
        if stream is None:
            return self.call(*args)
        with self.lock:
            return self._on(stream, args)

    def _on(self, stream: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
        addresses = {k: a.data_ptr() for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
        key = (stream, _sizes(args) if self.symbolic else ())
        for recording in self.recordings.get(key, ()):
            if not recording.moved(addresses) and recording.free():
                return recording.run(args)
        before = self.seen.get(key)
        if len(self.seen) >= KNOWN:
            self.seen.clear()
        self.seen[key] = addresses
        if before is None:
            # The first call also lets the libraries make their workspaces, which a recording must not.
            return self.call(*args)
        for k, address in addresses.items():
            places = self.places.setdefault(k, set())
            if len(places) <= PLACES:
                places.add(address)
        self.restless |= {k for k, places in self.places.items() if len(places) > PLACES}
        self._forget()
        made = sum(map(len, self.recordings.values()))
        moved = {k for k in self.mutated if before.get(k) != addresses.get(k)}
        if made >= MOST or self.attempts >= 2 * MOST or moved or self.restless & self.mutated:
            return self.call(*args)
        return self._record(key, args)

    def _forget(self) -> None:
        """Drop the recordings that wait for an input to come back to where it was."""
        for key, made in self.recordings.items():
            kept = [r for r in made if self.restless.isdisjoint(r.addresses)]
            self.recordings[key] = kept

    def _record(self, key: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
        tensors = {k: a for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
        owned = {k: _home(a) for k, a in tensors.items() if k in self.restless}
        inputs = tensors | owned
        fixed = tuple(inputs.get(k, a) for k, a in enumerate(args))
        self.attempts += 1
        try:
            values, replay = self.capture(lambda: self.call(*fixed))
        except RuntimeError as error:
            self.attempts = 2 * MOST
            reason = " ".join(str(error).split())[:300]
            warnings.warn(
                f"fxstack: CUDA graphs are off for this graph, because recording it failed: {reason}",
                stacklevel=2,
            )
            return self.call(*args)
        owners = {t.untyped_storage()._cdata: k for k, t in inputs.items()}
        results = tuple(_result(v, owners, inputs) for v in values)
        del values
        small = [k for k, r in enumerate(results) if r.small][:COPIED]
        results = tuple(replace(r, small=k in small) for k, r in enumerate(results))
        places = {k: t.data_ptr() for k, t in tensors.items() if k not in owned}
        made = Recording(places, owned, results, replay)
        self.recordings.setdefault(key, []).append(made)
        return made.run(args)


def _sizes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args)


def _home(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for an input that moves, laid out as it is."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _result(value: object, owners: dict[int, int], inputs: dict[int, torch.Tensor]) -> Result:
    if not isinstance(value, torch.Tensor):
        return Result(value)
    source = owners.get(value.untyped_storage()._cdata)
    if source is None:
        return Result(value, value.numel() * value.element_size() <= SMALL)
    shift = value.storage_offset() - inputs[source].storage_offset()
    return Result(Window(source, tuple(value.shape), tuple(value.stride()), shift))


def stream_of(device: int) -> Callable[[], int | None]:
    """A function that gives the current stream of ``device``, or None while the program records it."""

    def current() -> int | None:
        if torch.cuda.is_current_stream_capturing():
            return None
        return int(torch_compat.cuda_getCurrentRawStream(device))

    return current


def capture_on_device(run: Callable[[], tuple[Any, ...]]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Record by torch's CUDA graphs, on the current device, into a memory pool of the recording's own.

    ``torch.cuda.graph`` has one stream, of the device that was current when it was first used, and leaves it as the current one
    where a recording fails. Libraries have a workspace for each stream, whose address is recorded: what is replayed on several
    streams of the program at a time must have been recorded on as many.
    """
    device = torch.cuda.current_device()
    stream = _side_stream(device, int(torch_compat.cuda_getCurrentRawStream(device)))
    graph = torch.cuda.CUDAGraph()
    with _RECORDING:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            return _recorded(graph, run), graph.replay


def _recorded(graph: torch.cuda.CUDAGraph, run: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        values = run()
    except BaseException:
        _abandon(graph)
        raise
    try:
        graph.capture_end()
    except RuntimeError:
        _record_nothing()
        raise
    return values


@lru_cache(maxsize=64)
def _side_stream(device: int, caller: int) -> torch.cuda.Stream:  # noqa: ARG001 - one for each
    return torch.cuda.Stream(device)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a recording in which something failed."""
    try:
        graph.capture_end()
    except RuntimeError:  # what failed is known already
        _record_nothing()


def _record_nothing() -> None:
    """Torch's generators take a recording that did not end for one that goes on, and refuse to draw: a whole one ends it."""
    graph = torch.cuda.CUDAGraph()
    place = torch.empty(1, device=_PLACE)
    graph.capture_begin(capture_error_mode="thread_local")
    place.zero_()
    graph.capture_end()
