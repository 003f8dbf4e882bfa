"""Generate the callable for users: Python source with only the statements that the graph needs.

A graph without mutations, aliases and lifted tensors gets a function of three lines. Each feature adds its
own lines. A call tests nothing that is known when the graph is compiled. ``training`` adds the compiled
forward of a training step, ``inference_wrapper`` a compiled inference graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.autograd import forward_ad

from fxstack_functionalize import torch_compat
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime.backward.output_edges import OutputEdges
from fxstack_functionalize.runtime.backward.replay import as_interpreter
from fxstack_functionalize.runtime.calling import FORWARD, Compiled, as_boxed, is_boxed, without_autocast
from fxstack_functionalize.runtime.forward.mutation import (
    early_rises,
    new_leaves,
    raise_version,
    relayout_inputs,
    write_back,
)
from fxstack_functionalize.runtime.forward.outputs import FirstCall, output_lines
from fxstack_functionalize.runtime.forward.sharing import base_maker, sharing_guard
from fxstack_functionalize.runtime.generated_source import Source, without_grad, without_views
from fxstack_functionalize.trace import Shell


def generate_wrapper(
    shell: Shell,
    options: AotOptions,
    role: str,
    compute: Callable[[Source], None],
    edges: OutputEdges | None = None,
) -> Callable[..., Any]:
    """Generate the callable. ``compute`` adds the statement that computes ``flat`` from ``args``."""
    source = Source()
    _add_arguments(source, shell, trains=role == FORWARD)
    undone = _add_changes_before(source, shell)
    with _on_error(source, shell, options, undone):
        compute(source)
    first = FirstCall(shell, role, check_strides=options.check_output_strides)
    source.add("if pending:", pending=first.pending)
    source.add("    flat = first(args, flat)", first=first)
    write = write_back(shell)
    if write is not None:
        source.add("write(args, flat)", write=write)
    *aliases, result = output_lines(shell, source.names, edges)
    for line in aliases:
        source.add(line)
    relayout = relayout_inputs(shell)
    if relayout is not None:
        source.add("relayout(args)", relayout=relayout)
    source.add(result)
    return source.build()


@contextmanager
def _on_error(source: Source, shell: Shell, options: AotOptions, undone: Sequence[str]) -> Iterator[None]:
    """Pass exceptions to ``options.on_error``, outside the ``except`` block: its errors need no context."""
    if options.on_error is None:
        yield
        return
    source.add("failure = None")
    with source.trying():
        yield
    source.add("except Exception as error:")
    source.add("    failure = error")
    source.add("if failure is not None:")
    for line in undone:
        source.add(f"    {line}")
    arguments = f"args[:{shell.captured.own_count}]"
    source.add(f"    return on_error(failure, eager.forward, {arguments})", on_error=options.on_error)


def _add_changes_before(source: Source, shell: Shell) -> list[str]:
    """Add the changes of inputs before the compiled graph runs. Return the statements that undo them."""
    leaves, rises = new_leaves(shell), early_rises(shell)
    for index in leaves:
        source.add(f"args[{index}].requires_grad_()")
    for index, rise in rises.items():
        source.add(f"raise_version(args[{index}], {rise})", raise_version=raise_version)
    undone = [f"args[{index}].requires_grad_(False)" for index in leaves]
    return undone + [f"raise_version(args[{index}], {-rise})" for index, rise in rises.items()]


def _add_arguments(source: Source, shell: Shell, *, trains: bool) -> None:
    """Add statements that complete ``args``. Calls that a compiled graph cannot serve run in eager."""
    captured = shell.captured
    bases, guard = base_maker(shell), sharing_guard(shell)
    source.add(
        "if transforms_active() or forward_ad._current_level >= 0:",
        transforms_active=torch_compat.are_functorch_transforms_active,
        forward_ad=forward_ad,
    )
    source.add("    return eager(*args)", eager=captured.graph_module)
    if trains:
        source.add("if anomaly():", anomaly=torch.is_anomaly_enabled)
        source.add("    return checked(*args)", checked=as_interpreter(captured.graph_module))
    if captured.lifted:
        source.add("args = (*args, *lifted)", lifted=captured.lifted)
    sizes = [spec.size_of for spec in captured.inputs if spec.size_of is not None]
    if sizes:
        items = "".join(f"args[{index}].size({dim}), " for index, dim in sizes)
        source.add(f"args = (*args, {items})")
    if guard is not None:
        source.add("if not same_sharing(args):", same_sharing=guard)
        source.add(f"    return eager(*args[:{shell.captured.own_count}])")
    if bases is not None:
        source.add("args = (*args, *bases(args))", bases=bases)


ROLE = "inference graph"


def inference_wrapper(shell: Shell, compiled: Compiled, options: AotOptions) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature."""
    info = shell.info
    boxed = is_boxed(compiled, ROLE) or info.autocast
    target = without_autocast(as_boxed(compiled, ROLE)) if info.autocast else compiled
    enables_grad = not info.grad_mode and _enables_grad(shell)
    guarded = (info.grad_mode or enables_grad) and bool(info.grad_inputs)

    def compute(source: Source) -> None:
        statement = "flat = compiled([*args])" if boxed else "flat = compiled(*args)"
        with without_grad(source) if guarded else nullcontext(), without_views(source):
            source.add(statement, compiled=target)

    call = generate_wrapper(shell, options, ROLE, compute)
    return torch.enable_grad()(call) if enables_grad else call


def _enables_grad(shell: Shell) -> bool:
    """Whether the graph turns grad mode on, so that later views of arguments have histories."""
    views = any(output.requires_grad for output in shell.info.outputs)
    return views and any(
        node.target is torch_compat.set_grad_enabled and node.args == (True,)
        for node in shell.captured.graph_module.graph.nodes
    )
