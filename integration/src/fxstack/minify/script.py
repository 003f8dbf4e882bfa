"""The text of a script that compiles one graph and compares it with eager."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack.minify.cases import Case, edit_copy
from fxstack.minify.stages import Setup
from fxstack_inductor.repro.script import global_text
from fxstack_inductor.repro.values import text_of

LINES = 30
"""Maximum number of lines of a script."""
LITERAL = 64
"""Square root of the maximum number of elements of a tensor that a script writes out."""
_DELETIONS = re.compile(r";  (\w+ = )+None$")
_COMPARE = "torch.testing.assert_close(actual, expected, {bounds}, equal_nan=True{more})"


def script_text(
    case: Case, setup: Setup, inputs: Sequence[str] | None, *, tolerance: tuple[float, float], about: str = ""
) -> str:
    """Return the script.

    Args:
        case: The graph, and the inputs to describe.
        setup: How the graph is compiled.
        inputs: An expression for each input; None calls ``given()``, which the caller of the script defines.
        tolerance: The relative and the absolute tolerance.
        about: The text of the docstring.
    """
    body = _functions(case.graph, "f")
    making = ["    inputs = given()"] if inputs is None else _inputs(case, inputs)
    trains = any(isinstance(x, torch.Tensor) and x.requires_grad for x in case.inputs)
    rtol, atol = tolerance
    more = ", check_stride=True" if setup.strides else ""
    parts = [
        f'"""{about}"""' if about else "",
        *_imports(case.graph, "\n".join([*body, *making])),
        *case.state,
        "",
        *body,
        "",
        "def run(call):",
        "    torch.manual_seed(0)",
        *making,
        *_call(case),
        *(_BACKWARD if trains else ()),
        f"    return [*outputs, *{'arguments' if case.copied else 'inputs'}{_GRADIENTS if trains else ''}]",
        "",
        "expected = run(f)",
        f"actual = run(fxstack.compile(f, {setup.arguments()}))",
        _COMPARE.format(bounds=f"rtol={rtol:.1g}, atol={atol:.1g}", more=more),
    ]
    return "\n".join(parts[0 if about else 1 :]) + "\n"


_BACKWARD = (
    "    wanted = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]",
    "    torch.manual_seed(1)",
    "    torch.autograd.backward(wanted, [torch.randn_like(x) for x in wanted])",
)
_GRADIENTS = ", *(x.grad for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad)"


def _imports(graph: GraphModule, text: str) -> list[str]:
    """Return imports and definitions of the names that ``text`` uses."""
    names = {
        name: global_text(name, value)
        for module in graph.modules()
        if isinstance(module, GraphModule)
        for name, value in module.graph.python_code("self").globals.items()
    }
    names |= {name: f"from math import {name}" for name in ("inf", "nan")}
    used = {line for name, line in names.items() if re.search(rf"\b{name}\b", text)} - {"import torch"}
    imports = sorted(line for line in used if line.startswith(("import ", "from ")))
    return [*imports, "import torch", "", "import fxstack", *sorted(used - set(imports))]


def _functions(graph: GraphModule, name: str) -> list[str]:
    """Return the graph as a function; graphs inside of it are functions before it."""
    inner = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
    lines = []
    for target in dict.fromkeys(inner):
        lines += [*_functions(graph.get_submodule(target), target.replace(".", "_")), ""]
    source = graph.graph.python_code("self").src.strip().splitlines()
    parameters = [str(node.target) for node in graph.graph.nodes if node.op == "placeholder"]
    lines.append(f"def {name}({', '.join(parameters)}):")
    for line in source[1:]:
        text = re.sub(r"\bself\.([\w.]+)", lambda match: match[1].replace(".", "_"), _DELETIONS.sub("", line))
        if text.strip():
            lines.append(text)
    return lines


def _call(case: Case) -> list[str]:
    """Return the lines of the script that call the graph. Inputs that it must not change are copied."""
    if not case.copied:
        return ["    outputs = call(*inputs)"]
    arguments = [f"inputs[{i}]{'.clone()' if i in case.copied else ''}" for i in range(len(case.inputs))]
    return [f"    arguments = [{', '.join(arguments)}]", "    outputs = call(*arguments)"]


def _inputs(case: Case, inputs: Sequence[str]) -> list[str]:
    """Return the lines that make the inputs: several on a line if they are many."""
    memory = [f"    {line}" for line in shared_memory(case.inputs).values()]
    if len(inputs) <= 5:
        return [*memory, "    inputs = [", *(f"        {text}," for text in inputs), "    ]"]
    return [*memory, f"    inputs = [{', '.join(inputs)}]"]


def shared_memory(inputs: Sequence[object]) -> dict[int, str]:
    """Return, by the address of a memory that several inputs share, the statement that makes it."""
    owners: dict[int, list[torch.Tensor]] = {}
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.layout is torch.strided:
            owners.setdefault(x.untyped_storage().data_ptr(), []).append(x)
    statements: dict[int, str] = {}
    for address, tensors in owners.items():
        if address and len(tensors) > 1:
            first = tensors[0]
            count = first.untyped_storage().nbytes() // first.element_size()
            dense = first.as_strided((count,), (1,), 0)
            statements[address] = f"memory{len(statements)} = {_random(dense)}"
    return statements


def expressions(value: object, shared: Mapping[int, str]) -> list[str]:
    """Return expressions for an input, in the order of how much they say about its elements."""
    if not isinstance(value, torch.Tensor):
        return [text_of(value)]
    statement = shared.get(value.untyped_storage().data_ptr()) if value.layout is torch.strided else None
    end = ".requires_grad_()" if value.requires_grad else ""
    if statement is not None:
        window = (tuple(value.shape), value.stride(), value.storage_offset())
        return [f"{statement.partition(' ')[0]}.detach().as_strided{window}{end}"]
    shape, stride = tuple(value.shape), value.stride()
    plain = value.is_contiguous()
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    flat = value.detach() if plain else value.detach().as_strided((count,), (1,))
    slice_ = "" if plain else f".as_strided({shape}, {stride})"
    texts = [f"{_random(flat)}{slice_}{end}"]
    if value.is_floating_point():
        texts.append(f"{_random(flat, 'rand')}{slice_}{end}")
    if flat.numel() <= LITERAL * LITERAL:
        device = "" if flat.device.type == "cpu" else f", device={str(flat.device)!r}"
        texts.append(f"torch.tensor({flat.tolist()}, dtype={flat.dtype}{device}){slice_}{end}")
    return texts


def _random(flat: torch.Tensor, function: str = "randn") -> str:
    """Return an expression for a dense tensor with the shape, dtype and range of ``flat``."""
    shape: Any = tuple(flat.shape)
    device = "" if flat.device.type == "cpu" else f", device={str(flat.device)!r}"
    if flat.dtype is torch.bool:
        return f"torch.rand({shape}{device}).gt(0.5)"
    if flat.is_floating_point() or flat.is_complex():
        dtype = "" if flat.dtype is torch.float32 else f", dtype={flat.dtype}"
        return f"torch.{function}({shape}{dtype}{device})"
    low, high = (int(flat.min()), int(flat.max())) if flat.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={flat.dtype}{device})"


def rename_inputs(case: Case) -> Case:
    """Return the case with the inputs named ``x0``, ``x1``, ..."""
    names = (f"x{number}" for number in itertools.count())

    def rename(node: Node) -> None:
        if node.op == "placeholder":
            node.target = node.name = next(names)

    return replace(case, graph=edit_copy(case.graph, rename))
