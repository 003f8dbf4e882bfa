"""The interface of a target: everything that differs between C on a CPU and Triton on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import torch
from torch.fx import GraphModule

from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.steps import Plan
from fxstack_interchange.passes import Pass

Compiled = Callable[..., tuple[Any, ...]]


class LoweredGraph(Protocol):
    """The generated code of a graph, before a process loads it."""

    @property
    def plan(self) -> Plan: ...

    @property
    def program(self) -> HostProgram: ...

    @property
    def kernels(self) -> str:
        """The text of the kernels, for people: ``lower(graph).kernels``."""

    @property
    def host(self) -> str:
        """The host program as Python, even if the host program that runs is C."""


class Target(ABC):
    """A language of kernels on one type of device. ``targets.all_targets`` lists the instances."""

    name: ClassVar[str]
    """The language of the kernels. Reports of passes call the printing stage by this name."""
    device: ClassVar[str]
    """The device type of torch. Options and ``lower`` name a target by its device type."""
    passes: ClassVar[tuple[Pass[Any], ...]]
    """The passes that print a schedule as text."""
    freezes: ClassVar[bool] = False
    """Whether ``options.freezing`` applies to graphs on this device."""
    writes_repros: ClassVar[bool] = False
    """Whether ``options.repro_dir`` applies: ``repro`` can write a graph of this target as a script."""
    has_images: ClassVar[bool] = False
    """Whether ``compiled_store`` can store a compiled graph on disk."""
    has_attention: ClassVar[bool] = False
    """Whether the operators of ``templates.attention`` become kernels. On other devices they must be decomposed."""

    @abstractmethod
    def lower(
        self, graph_module: GraphModule, options: InductorOptions, name: str, *, boxed: bool = False
    ) -> LoweredGraph:
        """Return the generated code of what ``load`` returns; neither a compiler nor a device is needed.

        ``name`` is ``device``, or ``device`` with a machine: for ``cuda:sm_90``, the times on this GPU are
        predicted.

        Raises:
            ValueError: the target does not know the machine.
        """

    @abstractmethod
    def load(self, graph_module: GraphModule, options: InductorOptions, *, boxed: bool) -> Compiled:
        """Return a callable of the graph's inputs; with ``boxed``, of one list of inputs.

        Raises the exceptions that ``compile.compile_graph`` documents.
        """


def tensors_of(graph_module: GraphModule) -> Iterator[torch.Tensor]:
    """Yield the fake tensors of the graph's nodes."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(v, torch.Tensor):
                yield v
