"""ATen calls that a native host program makes through torch's C shim: one rule per overload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import DTYPE_CODES, identifier
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.registry import find_overload
from fxstack_inductor.runtime.native import has_function
from fxstack_inductor.schedule.outvariants import out_variant
from fxstack_inductor.schedule.steps import Step


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a shim function: ``text`` in C; ``again`` in Python, for the repeated call.

    Both texts have one ``{}`` per tensor.
    """

    text: str
    again: str
    tensors: tuple[records.Variable | records.Strided, ...] = ()
    """The tensors whose handles replace ``{}``, in order."""


@dataclass(frozen=True, slots=True)
class ShimCall:
    """A call of the shim's ``function``, which returns ``returns`` values; ``tensors`` are the positions of tensors.

    ``again``: text of the Python function that runs if the call fails; its ``{}`` becomes the name of
    operator ``target``. ``allocated``: memory for the result, if the call writes into memory that the
    program lacks.
    """

    function: str
    arguments: list[Argument]
    target: Any
    again: str
    returns: int = 0
    tensors: tuple[int, ...] = ()
    allocated: records.Allocate | None = None


OUT_CALLS: Mapping[object, tuple[str, ...]] = MappingProxyType(
    {
        find_overload("mm.out"): (),
        find_overload("bmm.out"): (),
        find_overload("addmm.out"): ("beta", "alpha"),
        find_overload("baddbmm.out"): ("beta", "alpha"),
    }
)
"""The numbers that ``function(out, *tensors, *numbers)`` takes, by ``out=`` overload."""
ATTENTION = ("flash_attention_for_cpu", "flash_attention", "cudnn_attention", "efficient_attention")
NEW_CALLS: Mapping[object, str] = MappingProxyType(
    {
        find_overload(f"{name}.default"): name
        for name in (
            "convolution",
            "convolution_backward",
            "native_dropout",
            "topk",
            "_scaled_mm",
            *(
                f"_scaled_dot_product_{kind}{backward}"
                for kind in ATTENTION
                for backward in ("", "_backward")
            ),
        )
    }
)
"""Functions that return new tensors, without their device; the rules below derive their signatures."""
UNDEFINED = "undefined"
"""The value of ``Argument.text`` for the handle of an undefined tensor."""


def shim_name(name: str, device: str) -> str:
    """Return the shim's function ``name`` for tensors on device type ``device``."""
    return f"aoti_torch_{device}_{name}"


def shim_call(call: records.Call) -> ShimCall | None:
    """Return ``call`` as a call through the shim; None if the shim cannot express it."""
    step = call.step
    if not isinstance(step, ExternCall):
        return None
    devices = {node.device.type for node in (*step.reads, *step.outputs)}
    device = devices.pop() if len(devices) == 1 else ""
    call_of_shim = _into_memory(call, step, device) or _into_new_tensors(call, step, device)
    return call_of_shim if call_of_shim is not None and has_function(call_of_shim.function) else None


def _into_memory(call: records.Call, step: ExternCall, device: str) -> ShimCall | None:
    """Return the call that writes into planned memory, or into memory allocated before the call."""
    target = out_variant(step, device)
    if target not in OUT_CALLS:
        return None
    scales = {name: call.kwargs.get(name, 1) for name in OUT_CALLS[target]}
    count = 3 if scales else 2
    if len(call.args) != count or call.kwargs.keys() - scales or not all(map(_is_double, scales.values())):
        return None
    result = records.Variable(identifier(step.outputs[0].name))
    out = call.out or result
    allocated = None if call.out else records.Allocate(result.name, step.outputs[0].layout)
    arguments = [Argument("{}", "", (tensor,)) for tensor in (out, *call.args)]
    arguments += [Argument(float(value).hex(), "") for value in scales.values()]
    keywords = "".join(f"{name}={value!r}, " for name, value in scales.items())
    again = f"(out, *args):\n    with below_autograd():\n        {{}}(*args, {keywords}out=out)\n"
    function = shim_name(f"{target._schema.name.removeprefix('aten::')}_out", device)
    return ShimCall(function, arguments, target, again, allocated=allocated)


def _is_double(value: object) -> bool:
    """Whether ``value`` is a finite number that a double holds exactly."""
    if type(value) is int:
        return abs(value) <= 2**53
    return type(value) is float and math.isfinite(value)


def _into_new_tensors(call: records.Call, step: ExternCall, device: str) -> ShimCall | None:
    """Return the call that makes new tensors; numbers among its results are ignored."""
    arguments = _arguments(call, step) if step.target in NEW_CALLS else None
    if arguments is None:
        return None
    returns = step.target._schema.returns
    tensors = tuple(k for k, result in enumerate(returns) if str(result.type) == "Tensor")
    if not {result.position for result in call.results} <= set(tensors):
        return None
    names = (f"tensors[{k}]" for k in range(sum(len(a.tensors) for a in arguments)))
    texts = ", ".join(a.again.format(*(next(names) for _ in a.tensors)) for a in arguments)
    again = f"(*tensors):\n    {{}}({texts})\n"
    function = shim_name(NEW_CALLS[step.target], device)
    return ShimCall(function, arguments, step.target, again, len(returns), tensors)


def _arguments(call: records.Call, step: ExternCall) -> list[Argument] | None:
    """Return the arguments of ``call`` in schema order; None if an argument is known only at run time."""
    arguments = []
    schema = step.target._schema.arguments
    values = {a.name: v for a, v in zip(schema, call.args, strict=False)} | call.kwargs
    for argument in schema:
        value = values.get(argument.name, argument.default_value)
        text = ARGUMENTS[str(argument.type)](_fixed(value))
        if text is None:
            return None
        arguments.append(text)
    return arguments


def _fixed(value: object) -> Any:
    """Return ``value`` with integers in place of expressions that are constant."""
    if isinstance(value, Expr):
        number = value.as_int()
        return value if number is None else number
    return [_fixed(item) for item in value] if isinstance(value, (tuple, list)) else value


def _tensor(value: object) -> Argument | None:
    """Return a tensor argument; None if ``value`` is no tensor of the program."""
    if value is None:  # attention backward takes tensors that its forward did not make
        return Argument(UNDEFINED, "None")
    return Argument("{}", "{}", (value,)) if isinstance(value, (records.Variable, records.Strided)) else None


def _integer(value: object) -> Argument | None:
    """Return an integer or boolean argument; None if it is not constant."""
    return Argument(str(int(value)), repr(value)) if isinstance(value, (bool, int)) else None


def _number(value: Any) -> Argument | None:
    """Return a float argument; None if it is not a finite constant."""
    plain = isinstance(value, (int, float)) and math.isfinite(value)
    return Argument(float(value).hex(), repr(value)) if plain else None


def _integer_or_dtype(value: object) -> Argument | None:
    """Return an integer or dtype argument: schemas declare dtypes as integers, the shim takes the numbers."""
    if isinstance(value, torch.dtype):
        return Argument(f"(int32_t[]){{{{{DTYPE_CODES[value]}}}}}", repr(value))
    integer = _integer(value)
    return integer and Argument(f"(int64_t[]){{{{{integer.text}}}}}", integer.again)


def _list(kind: str) -> Callable[[Any], Argument | None]:
    """Return a maker of list arguments: a C array of ``kind``, and its length."""

    def make(value: Any) -> Argument | None:
        """Return the argument of a list of integers; None if an item is not constant."""
        if not all(isinstance(item, (bool, int)) for item in value):
            return None
        items = ", ".join(str(int(item)) for item in value) or "0"
        return Argument(f"({kind}[]){{{{{items}}}}}, {len(value)}", repr(value))

    return make


def _optional(make: Callable[[Any], Argument | None], kind: str) -> Callable[[Any], Argument | None]:
    """Return a maker of pointers to values that ``make`` makes; a missing value becomes a null pointer."""
    listed = kind.startswith("const int64_t")

    def optional(value: object) -> Argument | None:
        """Return the pointer to an argument; None if ``make`` declines it."""
        if value is None:
            return Argument("0, 0" if listed else "0", "None")
        text = make(value)
        if text is None:
            return None
        body, comma, count = text.text.rpartition(", ") if listed else (text.text, "", "")
        return Argument(f"({kind}[]){{{{{body}}}}}{comma}{count}", text.again, text.tensors)

    return optional


ARGUMENTS: Mapping[str, Callable[[Any], Argument | None]] = MappingProxyType(
    {
        "Tensor": _tensor,
        "Optional[Tensor]": _optional(_tensor, "void*"),
        "bool": _integer,
        "int": _integer,
        "float": _number,
        "Optional[float]": _optional(_number, "double"),
        "Optional[bool]": _optional(_integer, "int32_t"),
        "Optional[int]": lambda value: Argument("0", "None") if value is None else _integer_or_dtype(value),
        "List[int]": _list("int64_t"),
        "List[bool]": _list("int32_t"),
        "Optional[List[int]]": _optional(_list("int64_t"), "const int64_t*"),
    }
)
"""The shim's spelling of an argument, by its type in the schema."""


def through_shim(step: Step) -> bool:
    """Whether a native program may make the call of ``step`` without Python."""
    if not isinstance(step, ExternCall):
        return False
    return out_variant(step) in OUT_CALLS or step.target in NEW_CALLS
