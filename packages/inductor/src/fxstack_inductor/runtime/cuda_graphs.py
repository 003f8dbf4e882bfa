"""Record a compiled call as a CUDA graph: one launch for the whole call (``mode="reduce-overhead"``).

A recording reads and writes fixed addresses. An input that appears at the same few addresses is read in
place: a parameter, or a result of another recording (a program that holds its last results keeps two
recordings in use). Other inputs are copied to the recording's addresses. Results lie in memory of the
recording, and the next replay overwrites them. So a recording is replayed only when nobody holds its last
results; otherwise another recording is made, or, after ``MAX_RECORDINGS`` recordings, the call runs without a
recording. Results therefore always belong to the caller, as in eager.

Only the stream of a replay orders later work after the replay, so each stream has recordings of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_interchange.user_warnings import warn_user

Call = Callable[..., tuple[Any, ...]]
Capture = Callable[[Callable[[], tuple[Any, ...]]], tuple[tuple[Any, ...], Callable[[], None]]]
"""Records a function's device work; returns the function's results and a replay function."""

# Limits: a dropped result may be overwritten while another stream (record_stream) still reads the result. A
# graph that waits for the device, uses CPU tensors or spans devices is not recorded, and a warning gives the
# reason.

MAX_RECORDINGS = 8
"""The largest number of recordings of one graph."""
MAX_ADDRESSES = 2
"""The largest number of addresses of one input for which recordings are made."""
MAX_KEYS = 64
"""The largest number of (stream, sizes) keys whose last addresses are remembered."""
SMALL_BYTES = 1 << 16
"""Results of at most this many bytes are copied, which is cheaper than another recording."""
MAX_COPIES = 4
"""The largest number of copied results: the first ones, which programs may keep; saved tensors follow."""
_PLACE = "cuda"
_RECORDING = threading.RLock()
"""One thread records at a time: a device synchronisation of another thread would end the recording."""


@dataclass(frozen=True)
class Window:
    """A result that is (a view of) input number ``source``; each call takes the result from its own input."""

    source: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    shift: int
    """Elements between the first element of the input and that of the result."""

    def of(self, owner: torch.Tensor) -> torch.Tensor:
        """Return the view of ``owner``, the input of this call."""
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
    """Whether each replay copies the result, so that a caller who keeps it prevents no replay."""

    def give(self, args: tuple[Any, ...]) -> Any:
        """Return the result for a call with ``args``: small tensors are copied, others share the recording's memory."""
        if isinstance(self.value, Window):
            return self.value.of(args[self.value.source])
        if not isinstance(self.value, torch.Tensor):
            return self.value
        return self.value.clone() if self.small else self.value.detach()


@dataclass
class Recording:
    """One recorded call: addresses of the inputs read in place, by position, and copies of the other inputs.

    The recording holds no input, because results of other recordings must become free again.
    """

    addresses: dict[int, int]
    owned: dict[int, torch.Tensor]
    """Copies of inputs, at the addresses that the recording reads."""
    results: tuple[Result, ...]
    """The results of the recorded call, in order."""
    replay: Callable[[], None]
    """Runs the recorded work again."""
    storages: tuple[Any, ...] = ()
    """The storages of results in the recording's memory."""
    counts: tuple[int, ...] = ()
    """The number of references to each result storage that the recording itself holds."""

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
        """Whether an input that is read in place has another address now."""
        return any(address != addresses[k] for k, address in self.addresses.items())

    def run(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copy the moving inputs, replay, and return the results."""
        for k, copy in self.owned.items():
            copy.copy_(args[k])
        self.replay()
        return tuple(result.give(args) for result in self.results)


def _uses(storage: Any) -> int:
    """Return the number of references to a storage."""
    return int(torch_compat.storage_Use_Count(storage._cdata))


@dataclass
class GraphedCall:
    """``call`` through recordings. ``mutated``: positions of written inputs, which are never copied."""

    call: Call
    capture: Capture
    """Records a call: ``capture_on_device``, or a substitute in tests."""
    mutated: frozenset[int] = frozenset()
    symbolic: bool = False
    """Whether sizes are arguments, so that each recording serves one set of sizes."""
    stream: Callable[[], int | None] = lambda: 0
    """Returns the stream of the call, or None while the program records the call into its own CUDA graph."""
    recordings: dict[Any, list[Recording]] = field(default_factory=dict)
    """The recordings made so far, by stream and sizes."""
    seen: dict[Any, dict[int, int]] = field(default_factory=dict)
    """Addresses of the last call, by stream and sizes."""
    places: dict[int, set[int]] = field(default_factory=dict)
    """Addresses of each input, by position; addresses of first calls are not counted."""
    often_moved: set[int] = field(default_factory=set)
    """Inputs that have had more than ``MAX_ADDRESSES`` addresses."""
    attempts: int = 0
    """The number of recordings that were tried, failed recordings included."""
    lock: Any = field(default_factory=threading.RLock)
    """Prevents a second replay between a replay and the return of its results."""

    def __call__(self, *args: object) -> tuple[Any, ...]:
        stream = self.stream()
        if stream is None:
            return self.call(*args)
        with self.lock:
            return self._on(stream, args)

    def _on(self, stream: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the call on ``stream``: replay a free recording, make one, or run without a recording."""
        addresses = {k: a.data_ptr() for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
        key = (stream, _sizes(args) if self.symbolic else ())
        for recording in self.recordings.get(key, ()):
            if not recording.moved(addresses) and recording.free():
                return recording.run(args)
        before = self.seen.get(key)
        if len(self.seen) >= MAX_KEYS:
            self.seen.clear()
        self.seen[key] = addresses
        if before is None:
            # The first call also lets libraries allocate workspaces, which is not allowed during a recording.
            return self.call(*args)
        for k, address in addresses.items():
            places = self.places.setdefault(k, set())
            if len(places) <= MAX_ADDRESSES:
                places.add(address)
        self.often_moved |= {k for k, places in self.places.items() if len(places) > MAX_ADDRESSES}
        self._forget()
        recording_count = sum(map(len, self.recordings.values()))
        moved = {k for k in self.mutated if before.get(k) != addresses.get(k)}
        if (
            recording_count >= MAX_RECORDINGS
            or self.attempts >= 2 * MAX_RECORDINGS
            or moved
            or self.often_moved & self.mutated
        ):
            return self.call(*args)
        return self._record(key, args)

    def _forget(self) -> None:
        """Drop the recordings that require a fixed address of an input that often moved."""
        for key, recordings in self.recordings.items():
            usable = [r for r in recordings if self.often_moved.isdisjoint(r.addresses)]
            self.recordings[key] = usable

    def _record(self, key: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Record the call and replay the recording; if recording fails, never record this graph again."""
        tensors = {k: a for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
        owned = {k: _home(a) for k, a in tensors.items() if k in self.often_moved}
        inputs = tensors | owned
        fixed = tuple(inputs.get(k, a) for k, a in enumerate(args))
        self.attempts += 1
        try:
            values, replay = self.capture(lambda: self.call(*fixed))
        except RuntimeError as error:
            self.attempts = 2 * MAX_RECORDINGS
            reason = " ".join(str(error).split())[:300]
            warn_user(
                f"fxstack: CUDA graphs are off for this graph, because recording it failed: {reason}",
                UserWarning,
            )
            return self.call(*args)
        owners = {t.untyped_storage()._cdata: k for k, t in inputs.items()}
        results = tuple(_result(v, owners, inputs) for v in values)
        del values
        small = [k for k, r in enumerate(results) if r.small][:MAX_COPIES]
        results = tuple(replace(r, small=k in small) for k, r in enumerate(results))
        places = {k: t.data_ptr() for k, t in tensors.items() if k not in owned}
        recording = Recording(places, owned, results, replay)
        self.recordings.setdefault(key, []).append(recording)
        return recording.run(args)


def _sizes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what must be equal for a recording to serve a call: layouts of tensors, and numbers."""
    return tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args)


def _home(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory for a moving input, with the input's layout."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _result(value: object, owners: dict[int, int], inputs: dict[int, torch.Tensor]) -> Result:
    """Return a value of a recorded call as a ``Result``; a view of an input becomes a ``Window``.

    ``owners`` maps storages to the positions of ``inputs``.
    """
    if not isinstance(value, torch.Tensor):
        return Result(value)
    source = owners.get(value.untyped_storage()._cdata)
    if source is None:
        return Result(value, value.numel() * value.element_size() <= SMALL_BYTES)
    shift = value.storage_offset() - inputs[source].storage_offset()
    return Result(Window(source, tuple(value.shape), tuple(value.stride()), shift))


def stream_of(device: int) -> Callable[[], int | None]:
    """Return a function that returns the address of the current stream of ``device``.

    It returns None while the program records that stream.
    """

    def current() -> int | None:
        """Return the current stream's address, or None during the program's own recording."""
        if torch.cuda.is_current_stream_capturing():
            return None
        return int(torch_compat.cuda_getCurrentRawStream(device))

    return current


def capture_on_device(run: Callable[[], tuple[Any, ...]]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Record with torch's CUDA graphs, on the current device, into a memory pool of the recording's own.

    ``torch.cuda.graph`` uses one stream, of the device that was current at its first use, and leaves that
    stream current if a recording fails. Libraries have a workspace per stream, and a recording contains the
    workspace's address. So recordings that are replayed concurrently on several streams must be recorded on
    as many streams.
    """
    device = torch.cuda.current_device()
    stream = _side_stream(device, int(torch_compat.cuda_getCurrentRawStream(device)))
    graph = torch.cuda.CUDAGraph()
    with _RECORDING:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            return _recorded(graph, run), graph.replay


def _recorded(graph: torch.cuda.CUDAGraph, run: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Record ``run`` into ``graph`` and return the results; after an error, end the recording first."""
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
def _side_stream(device: int, caller: int) -> torch.cuda.Stream:  # noqa: ARG001 - one stream per caller stream
    """Return a stream to record on, one for each stream of the callers."""
    return torch.cuda.Stream(device)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a recording that failed, so that the device works normally again."""
    try:
        graph.capture_end()
    except RuntimeError:  # the first error is known already
        _record_nothing()


def _record_nothing() -> None:
    """Record an empty graph: torch's generators refuse to draw until a recording has ended successfully."""
    graph = torch.cuda.CUDAGraph()
    tensor = torch.empty(1, device=_PLACE)
    graph.capture_begin(capture_error_mode="thread_local")
    tensor.zero_()
    graph.capture_end()
