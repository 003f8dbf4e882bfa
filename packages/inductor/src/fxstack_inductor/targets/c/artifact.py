"""A lowered CPU graph as a process runs it: texts to compile and objects to link; storable on disk.

An image holds no graph. The original graph is requested only when an index is out of range, so that eager
raises its error.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.fx import GraphModule

from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.names import HELPERS
from fxstack_inductor.codegen.host.program import HostProgram, Memory
from fxstack_inductor.codegen.host.python_host import host_program
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.expr_json import expr_from_json, expr_to_json
from fxstack_inductor.ir.nodes import Layout
from fxstack_inductor.lower.nested.graphs import NestedGraph
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.arena import Window
from fxstack_inductor.runtime.parts import PART
from fxstack_inductor.schedule.memory import Slot
from fxstack_inductor.schedule.steps import Plan, all_kernels
from fxstack_interchange import LoadError, SaveError
from fxstack_interchange.format.encoding.arguments import decode_constant, encode
from fxstack_interchange.format.encoding.bare import graph_from_json, graph_to_json
from fxstack_interchange.format.show import short_repr

MAX_CONSTANT_BYTES = 1 << 20
"""The largest constant tensor of a graph that is stored on disk."""


def kernels_of(c: str) -> str:
    """Return the kernels of a C file, without the head that all files share."""
    return "".join(c.split(PART)[1:]).strip("\n")


@dataclass(frozen=True, repr=False)
class Lowered:
    """A lowered graph: the schedule, the kernels in C and the host program."""

    plan: Plan
    c: str
    """The text of the C file, without the host program; empty without kernels."""
    program: HostProgram
    functions: dict[str, str]
    """C functions by the name of the kernel."""
    graph: GraphModule
    """The graph before lowering."""
    options: InductorOptions
    lower_nested: Callable[[NestedGraph], Lowered]
    """Returns the generated code of a function that an operator of a Python program calls."""

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """The file to compile: the kernels and, if it is native, the host program."""
        program = self.program
        return f"{self.c}{PART}{program.c}" if program.native else self.c

    @property
    def kernels(self) -> str:
        """The kernels without the head that the files of all graphs share."""
        return kernels_of(self.c)

    @cached_property
    def host(self) -> str:
        """The host program as Python; a native host program does the same."""
        if self.program.native:
            return host_program(host_steps(self.plan), self.functions, boxed=self.plan.boxed).source
        return self.program.source


PLAIN, PLAIN_PROGRAM = (
    ("name", "text", "checked", "boxed", "single"),
    ("source", "arguments", "native", "calls_back"),
)
"""The fields of an image and of its program that are JSON."""


@dataclass(frozen=True)
class Image:
    """A lowered graph as a process links it. ``text``: the C of the kernels and the host program; "" without C.

    ``checked``: a kernel checks indices. ``boxed``: the program takes one list. ``single``: the function of an operator
    returns one value instead of a tuple. Constants of the program that are functions are images.
    """

    name: str
    """The file name in tracebacks through the host program, for example ``<fxstack GraphModule>``."""
    text: str
    program: HostProgram
    checked: bool
    boxed: bool
    single: bool = False


def image_of(lowered: Lowered, *, boxed: bool) -> Image:
    """Return the image of a lowered graph: what ``link`` needs, without the graph."""
    graphs = {value for value in lowered.program.constants.values() if isinstance(value, NestedGraph)}
    nested = {graph: _nested_image(graph, lowered.lower_nested(graph)) for graph in graphs}
    constants = {
        name: nested[value] if isinstance(value, NestedGraph) else value
        for name, value in lowered.program.constants.items()
    }
    checked = any(kernel.checked for kernel in all_kernels(lowered.plan))
    checked = checked or any(image.checked for image in nested.values())
    name, program = (
        f"<fxstack {lowered.graph._get_name()}>",
        replace(lowered.program, c="", constants=constants),
    )
    return Image(name, lowered.text, program, checked, boxed)


def _nested_image(graph: NestedGraph, lowered: Lowered) -> Image:
    """Return the image of a function that an operator calls."""
    return replace(image_of(lowered, boxed=False), single=graph.is_single)


def image_to_json(image: Image) -> dict[str, Any]:
    """Return an image as JSON.

    Raises:
        SaveError: the image holds an object that cannot be stored.
    """
    program = image.program
    constants = {name: v for name, v in program.constants.items() if name not in HELPERS}
    return {
        **{name: getattr(image, name) for name in PLAIN},
        **{name: getattr(program, name) for name in PLAIN_PROGRAM},
        "state": list(program.state),
        "constants": {name: _constant_to_json(value) for name, value in constants.items()},
        "symbols": list(program.symbols),
        "slots": _record_to_json(program.slots),
        "windows": _record_to_json(program.windows),
        "workspaces": _record_to_json(program.workspaces),
    }


def image_from_json(content: Mapping[str, Any]) -> Image:
    """Return the image that ``image_to_json`` wrote.

    Raises:
        LoadError: the content is malformed.
    """
    try:
        constants = {name: _constant(value) for name, value in content["constants"].items()}
        program = HostProgram(
            **{name: content[name] for name in PLAIN_PROGRAM},
            state=tuple(content["state"]),
            constants={**HELPERS, **constants},
            slots=_record(content["slots"]),
            windows=_record(content["windows"]),
            symbols=tuple(content["symbols"]),
            workspaces=_record(content["workspaces"]),
        )
        return Image(program=program, **{name: content[name] for name in PLAIN})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LoadError(f"malformed image: {error}") from error


def _constant_to_json(value: object) -> Any:
    """Return a constant of the host program as JSON; raise ``SaveError`` for a large or special tensor."""
    if isinstance(value, GraphModule):
        return {"graph": graph_to_json(value)}
    if isinstance(value, Image):
        return {"image": image_to_json(value)}
    if not isinstance(value, torch.Tensor):
        return encode(value)
    plain = type(value) is torch.Tensor and value.layout is torch.strided and not value.is_cuda
    if not plain or value.requires_grad or value.is_conj() or value.is_neg():
        raise SaveError("a constant tensor of a special kind")
    if value.untyped_storage().nbytes() > MAX_CONSTANT_BYTES:
        raise SaveError("a large constant tensor")
    memory = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
    return {
        "bytes": base64.b64encode(bytes(memory.tolist())).decode(),
        "dtype": encode(value.dtype),
        "layout": [list(value.shape), list(value.stride()), value.storage_offset()],
    }


def _constant(content: object) -> Any:
    """Return the constant that ``_constant_to_json`` wrote."""
    if isinstance(content, dict) and "graph" in content:
        return graph_from_json(content["graph"])
    if isinstance(content, dict) and "image" in content:
        return image_from_json(content["image"])
    if not isinstance(content, dict) or "bytes" not in content:
        return decode_constant(content)
    data = bytearray(base64.b64decode(content["bytes"]))
    memory = torch.empty(0, dtype=torch.uint8)
    if data:  # frombuffer rejects an empty buffer; the copy has torch's alignment
        memory = torch.frombuffer(data, dtype=torch.uint8).clone()
    typed = torch.empty(0, dtype=decode_constant(content["dtype"]))
    return typed.set_(memory.untyped_storage(), content["layout"][2], *content["layout"][:2])


RECORDS: Final = MappingProxyType({"slot": Slot, "memory": Layout, "window": Window, "workspace": Memory})
"""Types whose values are stored as objects with one key, the tag, as in the format of graphs."""


def _record_to_json(value: object) -> Any:
    """Return a slot, a window, or a part of either as JSON."""
    if isinstance(value, tuple):
        return [*map(_record_to_json, value)]
    if isinstance(value, Expr):
        return {"expr": expr_to_json(value)}
    for tag, kind in RECORDS.items():
        if isinstance(value, kind):
            return {tag: [_record_to_json(getattr(value, part.name)) for part in fields(kind)]}
    return encode(value)


def _record(content: object) -> Any:
    """Return the value that ``_record_to_json`` wrote."""
    if isinstance(content, list):
        return tuple(map(_record, content))
    if isinstance(content, dict):
        ((tag, parts),) = content.items()
        if tag == "expr":
            return expr_from_json(parts)
        if tag in RECORDS:
            return RECORDS[tag](*map(_record, parts))
    return decode_constant(content)
