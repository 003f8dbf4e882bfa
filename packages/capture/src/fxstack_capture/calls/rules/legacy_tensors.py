"""``torch.Tensor(...)``, ``torch.LongTensor(...)`` and the like: tensors made by calling their class.

Whole numbers are sizes of memory that is not initialised, sequences of numbers are data. What the old constructors
take besides (tensors, arrays, storages, numbers of another kind) ends the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

RULES: RuleTable = RuleTable()

_CLASSES = {
    torch.Tensor: None,
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16,
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16,
    torch.CharTensor: torch.int8,
    torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}


def _register(cls: Any, fixed: torch.dtype | None) -> None:
    @RULES.rule(cls)
    def make(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dtype = torch.get_default_dtype() if fixed is None else fixed
        options = {"dtype": dtype, "device": "cpu"}
        if not kwargs and all(_is_size(number) for number in args):
            return trace.calls.call(torch.empty, (args or (0,),), options)
        if not kwargs and len(args) == 1:
            (data,) = args
            if type(data) is torch.Size:
                return trace.calls.call(torch.empty, (data,), options)
            if type(data) in (list, tuple) and _is_data(
                data, _KINDS.get(dtype, (bool, int, float))
            ):
                return trace.calls.call(torch.tensor, (data,), options)
        raise graph_break("unsupported-call", f"the class {cls.__module__}.{cls.__name__}")


def _is_size(number: object) -> bool:
    return type(number) is int or isinstance(number, torch.SymInt)


def _is_data(data: Any, kinds: tuple[type, ...]) -> bool:
    """Nested sequences of plain numbers of kinds that the old and the new constructors treat alike."""
    if type(data) in (list, tuple):
        return all(_is_data(item, kinds) for item in data)
    return type(data) in kinds


_KINDS: dict[torch.dtype, tuple[type, ...]] = {
    torch.bool: (bool,),
    **dict.fromkeys((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), (int,)),
}

for _cls, _dtype in _CLASSES.items():
    _register(_cls, _dtype)
