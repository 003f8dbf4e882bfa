"""The result of lowering a CPU graph: schedule, kernels in C, and host program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch.fx import GraphModule

from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import host_program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.parts import PART
from fxstack_inductor.schedule.steps import Plan
from fxstack_interchange.format.show import short_repr


def kernels_of(c: str) -> str:
    """Return the kernels of a C file, without the head that all files share."""
    return "".join(c.split(PART)[1:]).strip("\n")


@dataclass(frozen=True, repr=False)
class Lowered:
    """A lowered graph: the schedule, the kernels in C and the host program."""

    plan: Plan
    c: str
    program: HostProgram
    functions: dict[str, str]
    graph: GraphModule
    """The graph before lowering."""
    options: InductorOptions

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
            return host_program(host_steps(self.plan), self.functions).source
        return self.program.source
