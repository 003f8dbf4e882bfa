"""``write_repro``: write a graph's generated code as a script that needs only torch and a C compiler."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.names import identifier
from fxstack_inductor.errors import CompilerFailedError, ReproError
from fxstack_inductor.options import InductorOptions, options_from_environment
from fxstack_inductor.repro import harness
from fxstack_inductor.repro.host import ScriptPrinter, memory_lines, own_constants
from fxstack_inductor.repro.values import foreign, text_of
from fxstack_inductor.runtime import layout
from fxstack_inductor.runtime.toolchain import compiler_flags
from fxstack_inductor.targets.c.artifact import Lowered
from fxstack_inductor.targets.c.load import load_c
from fxstack_inductor.targets.c.lower import lower_c

# Limits: CPU graphs only. Floats are drawn from a normal distribution clamped to the observed range, without
# NaN and infinities; integer tensors of more than 64 elements are drawn between their extremes; tensors that
# shared memory do not share memory in the script. A failure before code generation leaves no script.

HEADER = '''"""Kernels that fxstack-inductor generated{origin}: compile, check against eager torch, and time them.

Run it with Python and torch {version}, with a C compiler on PATH or in FXSTACK_CC; --repeats N sets how often the call is timed.
Inputs are random, with the layouts and ranges of those that the graph was called with.
"""

'''
BINDINGS = """empty_strided, as_strided = torch.empty_strided, torch.as_strided
get_num_threads = torch.get_num_threads
error = ctypes.c_int32(0)
error_address = ctypes.addressof(error)


def out_of_range():
    return IndexError("a kernel met an index that is out of range")
"""


def write_repro(
    compiled_or_graph: Callable[..., Any] | GraphModule,
    example_inputs: Sequence[Any] = (),
    path: str | Path = "repro.py",
    options: InductorOptions | None = None,
) -> Path:
    """Write a script that compiles, checks and times the kernels of one graph, without this package.

    Args:
        compiled_or_graph: A result of ``compile_graph``, or a graph that ``compile_graph`` accepts.
        example_inputs: The graph's inputs. The script has random tensors with their layouts and ranges (integer
            tensors of up to 64 elements are kept). Without inputs, or with fake inputs, ranges are unknown.
        path: The file to write.
        options: Options for a graph; a compiled graph has its own options.

    Raises:
        ReproError: the code is for a GPU, or a constant or input cannot be written as text.
        OSError: the file cannot be written.
    """
    target = Path(path)
    target.write_text(script(_lowered(compiled_or_graph, options), example_inputs), encoding="utf-8")
    return target


def _lowered(source: object, options: InductorOptions | None) -> Lowered:
    """Return the lowered form of a compiled graph, or lower a graph for CPU.

    Raises:
        ReproError: ``source`` is neither a compiled graph nor a graph.
    """
    if isinstance(source, GraphModule):
        return lower_c(source, options_from_environment() if options is None else options)
    lowered = getattr(source, "lowered", None)
    if not isinstance(lowered, Lowered):
        raise ReproError(
            f"{source!r:.200} is neither a GraphModule nor a graph that was compiled for CPU; scripts "
            "of Triton kernels are not written yet: see lower(graph, target='cuda') for their text"
        )
    return lowered


def script(lowered: Lowered, example_inputs: Sequence[Any] = ()) -> str:
    """Return the text of the script for ``lowered``.

    Its inputs are like ``example_inputs`` or, without these, like the values of the trace.
    """
    graph = lowered.graph
    inputs = list(example_inputs) or _traced(graph)
    writer = ScriptPrinter(host_steps(lowered.plan, draws=False), lowered.functions)
    program = writer.program(boxed=False)
    constants = lowered.plan.program.constants
    flags, libraries = compiler_flags(lowered.options.optimization)
    parts = [
        HEADER.format(origin="", version=torch.__version__) + _code_of_harness(),
        "class UnexpectedResult(RuntimeError):\n    pass",
        *(inspect.getsource(f) for f in (layout.restride, layout.as_planned, layout._copy)),
        _imports(graph, writer.foreign),
        BINDINGS,
        f"KERNELS = r'''\n{lowered.c.replace(chr(39) * 3, chr(39) * 2)}'''",
        f"FLAGS = {list(flags)}\nLIBRARIES = {list(libraries)}",
        _functions(program.arguments),
        *([text] if (text := "\n".join(memory_lines(program, lowered.plan, inputs))) else []),
        "\n".join(f"{k} = {text_of(v)}" for k, v in own_constants(program, lowered.plan).items()),
        _attributes(constants, graph),
        program.source,
        _reference(graph),
        "torch.manual_seed(0)\nINPUTS = [\n" + "".join(f"    {text_of(x)},\n" for x in inputs) + "]",
        'if __name__ == "__main__":\n    main(call, REFERENCE, INPUTS)\n',
    ]
    return "\n\n".join(part for part in parts if part)


def _traced(graph: GraphModule) -> list[Any]:
    """Return the fake values of the graph's inputs, with which it was traced."""
    return [node.meta.get("val") for node in graph.graph.nodes if node.op == "placeholder"]


def _code_of_harness() -> str:
    """Return the code of ``harness`` without its docstring: the script has a docstring of its own."""
    text = inspect.getsource(harness)
    return text[text.index("from __future__") :]


def _imports(graph: GraphModule, called: set[str]) -> str:
    """Return a comment that names the operators whose modules the reader must import; "" without any.

    ``called`` are the operators of the host program.
    """
    operators = called | {n for n in map(foreign, (node.target for node in graph.graph.nodes)) if n}
    if not operators:
        return ""
    return f"# Import here what registers these operators: {', '.join(sorted(operators))}"


def _functions(arguments: dict[str, int]) -> str:
    """Return the lines that compile the kernels and load each by name, or "" without kernels.

    ``arguments``: the number of arguments of each kernel.
    """
    if not arguments:
        return ""
    lines = [f'{name} = kernel(LIBRARY, "{name}", {n})' for name, n in arguments.items()]
    return "\n".join(["LIBRARY = compile_source(KERNELS, FLAGS, LIBRARIES)", *lines])


def _attributes(constants: dict[str, torch.Tensor], graph: GraphModule) -> str:
    """Return Python text that defines the graph's tensors: by name for the host program, in ``SELF`` for the
    ATen graph.
    """
    names = {node.name: node.target for node in graph.graph.nodes if node.op == "get_attr"}
    lines = [f"{identifier(name)} = {text_of(value)}" for name, value in constants.items()]
    pairs = (f"{names[n]!r}: {identifier(n)}" for n in constants if n in names)
    return "\n".join([*lines, f"SELF = make_attributes({{{', '.join(pairs)}}})"])


def _reference(graph: GraphModule) -> str:
    """Return the text of ``REFERENCE``: the ATen graph as a function, or a text that says why there is none."""
    modules = [n for n, _ in graph.named_modules() if n]
    if any(node.op == "get_attr" and node.target in modules for node in graph.graph.nodes):
        return 'REFERENCE = "the ATen graph has graphs inside, which have no text"'
    code = graph.graph.python_code("self")
    try:
        names = "\n".join(global_text(name, value) for name, value in code.globals.items())
    except ReproError as error:
        return f"REFERENCE = {str(error)!r}"
    # FX's printer chooses the names.
    return f"{names}\n\n{code.src.strip()}\n\n\nREFERENCE = partial(forward, SELF)"


def global_text(name: str, value: object) -> str:
    """Return the statement that defines a name that the code of a graph uses."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    if value is torch.device:
        return f"{name} = torch.device"
    if value is type(None):
        return f"{name} = type(None)"
    return f"{name} = {text_of(value)}"


def write_into(folder: str | Path, lowered: Lowered, inputs: Sequence[Any]) -> Path | None:
    """Write ``graph_N.py`` with the next free number; on failure only warn, so that the program continues."""
    try:
        text = script(lowered, inputs)
        Path(folder).mkdir(parents=True, exist_ok=True)
        return _numbered(Path(folder), text)
    except (ReproError, OSError) as error:
        warnings.warn(f"fxstack: no script was written to {folder}: {error}", stacklevel=2)
        return None


def _numbered(folder: Path, text: str) -> Path:
    """Write ``text`` to the first free ``graph_N.py``; another process may write at the same time."""
    number = 0
    while True:
        path = folder / f"graph_{number}.py"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            number += 1
        else:
            return path


def compile_and_write(
    graph: GraphModule, options: InductorOptions, folder: str | Path, *, boxed: bool
) -> Callable[..., Any]:
    """Return the compiled graph. Its first call has real data, and writes the script to ``folder``.

    Raises:
        CompilerFailedError: the kernels do not compile; the script is written nevertheless.
        NoCompilerError: kernels are needed and there is no C compiler.
    """
    try:
        call = load_c(graph, options, boxed=boxed)
    except CompilerFailedError as error:
        written = write_into(folder, lower_c(graph, options), ())
        error.args = (f"{error}\nwritten: {written}",)
        error.script = written
        raise
    lowered = vars(call)["lowered"]
    pending = [lowered]

    def run(*args: Any) -> Any:
        """Run the call; the first time, also write the script."""
        if pending:
            write_into(folder, pending.pop(), args[0] if boxed else args)
        return call(*args)

    vars(run)["lowered"] = lowered
    if boxed:
        vars(run)["boxed"] = True
    return run
