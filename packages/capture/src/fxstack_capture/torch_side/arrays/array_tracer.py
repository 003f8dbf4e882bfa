"""``ArrayTracer``: the part of a trace that owns NumPy arrays.

A call runs twice. NumPy's function runs on example arrays and gives the metadata of the result. The
counterpart in ``torch._numpy`` runs on tensors of the trace and records the graph. If the metadata differs,
the graph breaks, with two exceptions. If NumPy copies and the counterpart returns a view, the trace clones
the view. If a new array has other strides, the trace copies the elements into NumPy's strides.

A copy may stand for NumPy's view only as long as the program writes to neither of them and the copy stays in
the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.functions import Pair, computing_dtypes, pairs
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.operator_protocol import OUT_OF_PLACE
from fxstack_capture.torch_compat import torch_numpy as tnp
from fxstack_capture.torch_side.arrays import dry_run
from fxstack_capture.torch_side.numbers import known_values
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.numpy_types import CONSTANT_TYPES, NUMPY_OF, SCALAR_TYPES, TORCH_OF, is_dtype_like
from fxstack_capture.trace.state import Args, Kwargs, Objects

_PLAIN = (int, float, complex, str, type(None), type(Ellipsis), np.dtype, range)
_CHOOSING = (np.clip, np.where, np.ndarray.clip)
"""Functions that combine plain numbers with elements but are no ufuncs."""


class ArrayTracer:
    """The NumPy arrays of one trace: creates arrays over tensors, runs NumPy calls on them, and converts them."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self.tracer = tracer
        self.active = False
        """Whether a function of ``torch._numpy`` is running. Torch then has other default dtypes."""
        self.has_scalars = False
        """Whether the trace has scalars that change from call to call."""
        self._buffers: dict[int, np.ndarray[Any, Any]] = {}
        """Maps the id of a storage to the example buffer. All example arrays of the storage use this buffer."""

    @property
    def objects(self) -> Objects:
        return self.tracer.trace.objects

    # --- from and to tensors ---------------------------------------------------------------------

    def from_tensor(self, tensor: torch.Tensor, *, writeable: bool = True) -> Array:
        """Return an array over the memory of a tensor: a dense CPU tensor of a dtype that NumPy has.

        ``writeable`` is the flag of this name of the array.
        """
        example = self._example(tensor)
        example.flags.writeable = writeable
        return Array(self, tnp.ndarray(tensor), example)

    def _example(self, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return an example array with the tensor's geometry. Tensors of one storage get arrays over one
        buffer. Break the graph if the buffer is too large.
        """
        with self.tracer.unrecorded():
            size = [self.hint(n) for n in tensor.size()]
            strides = [self.hint(n) * tensor.element_size() for n in tensor.stride()]
            start = self.hint(tensor.storage_offset()) * tensor.element_size()
            storage = tensor.untyped_storage()
            length = max(self.hint(storage.nbytes()), start + tensor.element_size())
        if length > dry_run.MAX_EXAMPLE_BYTES:
            raise graph_break("unsupported-object", f"a NumPy array of {length} bytes")
        extent = start + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
        length = max(length, extent + tensor.element_size()) if 0 not in size else length
        # Arrays over one storage must overlap in the dry run. NumPy decides by overlap whether it copies.
        buffer = self._buffers.get(storage._cdata)
        if buffer is None or buffer.nbytes < length:
            buffer = self._buffers[storage._cdata] = np.zeros(length, np.uint8)
        example: np.ndarray[Any, Any] = np.ndarray(
            tuple(size), NUMPY_OF[tensor.dtype], buffer.data, start, tuple(strides)
        )
        dry_run.fill_example(example)
        return example

    def to_tensor(self, array: Array) -> torch.Tensor:
        """Record ``torch.from_numpy``: return a new tensor on the same memory."""
        if isinstance(array.example, np.generic):
            name = type(array.example).__module__ + "." + type(array.example).__name__
            raise TypeError(f"expected np.ndarray (got {name})")
        if array.copied_at is not None:
            self.refuse("torch.from_numpy of an array that is backwards")
        return self.tracer.record(torch.Tensor.detach, (array.tensor,), {})

    def refuse(self, what: str) -> NoReturn:
        """Break the graph. ``what`` describes the unsupported array or call in the message."""
        raise graph_break("unsupported-object", what)

    def hint(self, number: Any) -> int:
        """Return the value of a size in this call. Break the graph if the size depends on tensor data."""
        if type(number) is int:
            return number
        hint = number.node.hint
        if hint is None:
            self.refuse("a NumPy array whose shape depends on data")
        return int(hint)

    # --- calls -----------------------------------------------------------------------------------

    def call(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a NumPy function, or an operator on arrays, by its counterpart in ``torch._numpy``. Break the
        graph if there is no counterpart.
        """
        pair = pairs().get(id(fn))
        if pair is None:
            raise graph_break("unsupported-call", dry_run.name_of(fn))
        return self.run(pair, args, kwargs)

    def run(self, pair: Pair, args: Args, kwargs: Kwargs) -> Any:
        """Run a call of NumPy's function ``pair.theirs`` by its counterpart ``pair.ours`` in
        ``torch._numpy``. Break the graph if the counterpart raises.
        """
        if torch.is_autocast_enabled("cpu"):
            self.refuse("a call of NumPy under autocast, which is not for arrays:")
        arrays = list(self._arrays((args, kwargs)))
        pair = self._concrete(pair, args, kwargs)
        expected = dry_run.call_numpy(
            pair.theirs,
            tuple(self._like(arg) for arg in args),
            {name: self._like(arg) for name, arg in kwargs.items()},
        )
        if not arrays and _is_constant(expected):
            # A result without arrays is a constant of the graph, so the numbers that influence it need
            # guards.
            self._settle_numbers((args, kwargs))
            return expected
        args = self._convert_operands(pair, args)
        self.active, before = True, self.active
        try:
            with self.tracer.function_mode():
                operands = tuple(self._inner(arg) for arg in args)
                keywords = {name: self._inner(arg) for name, arg in kwargs.items()}
                result = pair.ours(*operands, **keywords)
        except Exception as error:
            # The dry run raised nothing, so the error is that of ``torch._numpy``. Plain Python must run the
            # call.
            raise graph_break("unsupported-call", f"{dry_run.name_of(pair.theirs)} ({error})") from error
        finally:
            self.active = before
        return self._result(pair.theirs, expected, result, arrays)

    def about(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Return the result of ``fn`` on examples. ``fn`` is a function such as ``result_type`` that reads
        only dtypes.

        Raises NumPy's exceptions.
        """
        self._settle_numbers((args, kwargs))
        plain = [arg if isinstance(arg, type) else self._like(arg) for arg in args]
        return fn(*plain, **{name: self._like(kwargs[name]) for name in kwargs})

    def _demand_fitting(self, pair: Pair, operands: Args) -> None:
        """Break the graph if an integer does not fit into the narrower integer dtype of an array."""
        # torch would convert the integer to the dtype of the array, but NumPy compares the original integer.
        kinds = [array.example.dtype for array in self._arrays(operands)]
        narrow = [dtype for dtype in kinds if dtype.kind in "iu" and dtype.itemsize < 8]
        if not narrow:
            return
        self._settle_numbers(operands)
        if not _in_range(tuple(self._like(value) for value in operands), narrow):
            text = f"{dry_run.name_of(pair.theirs)} of integers that torch treats otherwise"
            raise graph_break("unsupported-call", text)

    def _concrete(self, pair: Pair, args: Args, kwargs: Kwargs) -> Pair:
        """Return the pair for these arguments. For an in-place operator on a scalar, it is the pair of the
        plain operator.

        Break the graph if torch would treat an integer argument differently from NumPy.
        """
        if pair.theirs in OUT_OF_PLACE and not (
            type(args[0]) is Array and isinstance(args[0].example, np.ndarray)
        ):
            if isinstance(args[0], list):
                self.refuse("augmented assignment of an array to a list")
            pair = pairs()[id(OUT_OF_PLACE[pair.theirs])]
        if pair.theirs in _CHOOSING:
            self._demand_fitting(pair, (*args, *kwargs.values()))
        if pair.holds is not None or any(type(arg) is int for arg in args):
            examples = [dry_run.call_numpy(np.asarray, (self._like(arg),), {}) for arg in args[:2]]
            dtypes = [array.dtype for array in examples]
            second = args[1] if len(args) > 1 else None
            fits = pair.holds is None or pair.holds(second, [dtype.kind for dtype in dtypes])
            if not fits or not _in_range(args[:2], dtypes):
                text = f"{dry_run.name_of(pair.theirs)} of integers that torch treats otherwise"
                raise graph_break("unsupported-call", text)
        return pair

    def _convert_operands(self, pair: Pair, args: Args) -> tuple[Any, ...]:
        """Return ``args``. If a ufunc computes in floats, its integer arrays are converted to floats, as in
        NumPy.
        """
        if all(arg.example.dtype.kind in "fc" for arg in args if type(arg) is Array):
            return args
        dtypes = computing_dtypes(pair.theirs, [self._like(arg) for arg in args])
        if dtypes is None:
            return args
        return tuple(
            self.call(np.asarray, (arg,), {"dtype": dtype})
            if type(arg) is Array and arg.example.dtype.kind in "biu" and dtype.kind in "fc"
            else arg
            for arg, dtype in zip(args, dtypes, strict=True)
        )

    def _arrays(self, value: object) -> Iterator[Array]:
        """Yield the arrays in ``value``, an argument or a container of arguments, at any depth."""
        if type(value) is Array:
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._arrays(item)
        elif isinstance(value, dict):
            yield from self._arrays(list(value.values()))

    def _like(self, value: Any) -> Any:
        """Return the argument for the dry run: an example for an array, and the current value for a number."""
        if type(value) in (Array, Scalar):
            return value.example
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value.node.hint
        return self._map(value, self._like)

    def _settle_numbers(self, value: object) -> None:
        """Guard the dynamic numbers in ``value``, because NumPy computes a constant from their values."""
        if type(value) is Scalar:
            value.settle()
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            self.tracer.specialize(value)
        elif isinstance(value, dict):
            self._settle_numbers(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._settle_numbers(item)

    def _inner(self, value: Any) -> Any:
        """Return the argument for the function of ``torch._numpy`` that corresponds to ``value``."""
        if type(value) is Array:
            return value.inner
        if type(value) is Scalar:
            dtype = TORCH_OF[value.example.dtype]
            return tnp.ndarray(self.tracer.record(torch.full, ((), value.item()), {"dtype": dtype}))
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value
        if type(value) in SCALAR_TYPES:
            return tnp.array(value.item(), dtype=np.dtype(type(value)).name)
        if is_dtype_like(value):
            return np.dtype(value).name
        return self._map(value, self._inner)

    def _map(self, value: Any, each: Callable[[Any], Any]) -> Any:
        """Return a container with ``each`` applied to its items. A plain value is returned unchanged.

        Break the graph for a tensor or any other object. NumPy would convert such an object in its own way.
        """
        kind = type(value)
        if isinstance(value, torch.Tensor):
            self.refuse("a call of NumPy on a tensor")
        if kind is list:
            return [each(item) for item in value]
        if kind is tuple or kind is torch.Size:
            return tuple(each(item) for item in value)
        if kind is slice:
            return slice(each(value.start), each(value.stop), each(value.step))
        if kind is dict:
            return {key: each(item) for key, item in value.items()}
        if isinstance(value, _PLAIN) or kind in CONSTANT_TYPES or is_dtype_like(value):
            return value
        raise graph_break("unsupported-call", f"NumPy with a {kind.__module__}.{kind.__qualname__}")

    # --- results ---------------------------------------------------------------------------------

    def _result(self, fn: Callable[..., Any], expected: Any, result: Any, arrays: list[Array]) -> Any:
        """Return the program's result: an array or a plain value.

        ``expected`` is NumPy's result of the dry run. ``result`` is the result of ``torch._numpy``. Break the
        graph if they differ in kind, or if they are different plain values.
        """
        for array in arrays:
            if expected is array.example:
                return array
        if isinstance(expected, (np.ndarray, np.generic)) and isinstance(result, tnp.ndarray):
            return self._wrap(fn, expected, result, arrays)
        if isinstance(expected, (tuple, list)) and isinstance(result, (tuple, list)):
            if len(expected) == len(result):
                parts = zip(expected, result, strict=True)
                items = [self._result(fn, e, r, arrays) for e, r in parts]
                make: Any = getattr(type(expected), "_make", type(expected))
                return make(items)
        elif isinstance(expected, np.dtype):
            if str(result) == expected.name:
                return expected
        elif _agree(expected, result):
            return result
        kind = type(expected)
        raise graph_break("unsupported-call", f"{dry_run.name_of(fn)}, which gives {kind.__name__}")

    def _wrap(self, fn: Callable[..., Any], expected: Any, result: tnp.ndarray, arrays: list[Array]) -> Array:
        """Return the array over a result of ``torch._numpy``. Break the graph if dtype or shape differ from
        NumPy's.

        If NumPy copies and the result is a view, the view is cloned. If NumPy has a view and the result is a
        copy, the copy may not be written.
        """
        tensor = result.tensor
        with self.tracer.unrecorded():
            lazy = tensor.is_conj() or tensor.is_neg()
        for plain in (torch.Tensor.resolve_conj, torch.Tensor.resolve_neg) if lazy else ():
            tensor = self.tracer.record(plain, (tensor,), {})
        with self.tracer.unrecorded():
            shape = tuple(self.hint(n) for n in tensor.size())
            storage = tensor.untyped_storage()._cdata
            ours = any(array.tensor.untyped_storage()._cdata == storage for array in arrays)
        if NUMPY_OF.get(tensor.dtype) != expected.dtype or shape != expected.shape:
            text = f"{dry_run.name_of(fn)}, which gives {expected.dtype} of shape {expected.shape} in NumPy"
            raise graph_break("unsupported-call", text)
        if tensor.device.type != "cpu":
            self.refuse(f"an array on the default device ({tensor.device})")
        theirs = dry_run.shares_memory(expected, (array.example for array in arrays))
        copied_at = next((a.copied_at for a in arrays if a.copied_at is not None and theirs), None)
        if ours and not theirs:
            tensor = self.tracer.record(torch.Tensor.clone, (tensor,), {})
        elif theirs and not ours:
            copied_at = self._keep_unwritten(tensor, arrays)
        if not theirs:
            tensor = self._with_strides(tensor, expected)
        return Array(self, tnp.ndarray(tensor), expected, copied_at)

    def _keep_unwritten(self, copy: torch.Tensor, arrays: list[Array]) -> int:
        """Break the graph at later writes to ``copy`` and to ``arrays``. NumPy has a view in place of
        ``copy``.

        Return the ``root_step`` that made the copy.
        """
        storages = {t.untyped_storage()._cdata for t in (copy, *(a.tensor for a in arrays))}
        text = "a write to an array that has a copy in place of a view"
        self.tracer.unwritable.update(dict.fromkeys(storages, text))
        return self.tracer.trace.interp.root_step

    def _with_strides(self, tensor: torch.Tensor, expected: Any) -> torch.Tensor:
        """Return a new tensor with NumPy's strides. Later calls may depend on the strides."""
        size, strides = expected.shape, np.asarray(expected).strides
        with self.tracer.unrecorded():
            now = tuple(self.hint(n) * tensor.element_size() for n in tensor.stride())
        if all(n == 1 or a == b for n, a, b in zip(size, now, strides, strict=True)) or 0 in size:
            return tensor
        if tensor._has_symbolic_sizes_strides:
            self.refuse("an array whose layout tensors do not have")
        elements = [stride // tensor.element_size() for stride in strides]
        laid_out = self.tracer.record(torch.empty_strided, (list(size), elements), {"dtype": tensor.dtype})
        return self.tracer.record(torch.Tensor.copy_, (laid_out, tensor), {})

    def text(self, fn: Callable[..., str], array: Array, *spec: str) -> str:
        """Return ``fn(array, *spec)``, for example ``str(array)``, for a scalar computed from constants.

        Break the graph for any other array.
        """
        # The text of an array depends also on NumPy's print options.
        scalar = isinstance(array.example, np.generic)
        value = known_values.value_of(self.tracer, array.tensor) if scalar else None
        if value is None:
            self.refuse("the text of an array")
        with self.tracer.unrecorded():
            return fn(type(array.example)(value.item()), *spec)

    def iterate(self, array: Array) -> Iterator[Any]:
        """Return ``iter(array)``: an iterator over the rows or items of the array."""
        dry_run.call_numpy(iter, (array.example,), {})
        count = self.call(len, (array,), {})
        return iter([self.call(operator.getitem, (array, i), {}) for i in range(count)])


def _in_range(operands: Args, dtypes: list[np.dtype[Any]]) -> bool:
    """Return whether plain integers fit into the integer dtypes. If one does not fit, torch would wrap it
    around.
    """
    limits = [np.iinfo(dtype) for dtype in dtypes if dtype.kind in "iu"]
    numbers = [number for number in operands if type(number) is int]
    return all(limit.min <= number <= limit.max for limit in limits for number in numbers)


def _agree(expected: Any, result: Any) -> bool:
    """Return whether a plain result equals NumPy's result. If the result is symbolic, it is a size."""
    if isinstance(result, (torch.SymInt, torch.SymBool)):
        return isinstance(expected, int)
    return type(expected) is type(result) and (expected is None or expected == result)


def _is_constant(value: object) -> bool:
    """Return whether a NumPy result is plain data: no arrays at any depth of tuples and lists."""
    if isinstance(value, (tuple, list)):
        return all(_is_constant(item) for item in value)
    return type(value) in CONSTANT_TYPES or isinstance(value, (int, float, complex, str, type(None)))
