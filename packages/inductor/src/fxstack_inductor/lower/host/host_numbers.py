"""Pass numbers that the host computes to kernels: as a tensor on CPU, as a kernel argument on a GPU."""

from __future__ import annotations

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.nodes import Argument, Extern, ExternCall, Layout, Node
from fxstack_inductor.lower.context import HostScalar
from fxstack_inductor.lower.host.numbers import number_bits, tensor_bits
from fxstack_inductor.lower.node_queries import tensors
from fxstack_inductor.lower.program import HostValue, Program


class HostNumbers:
    """The host numbers of one program, for kernels on device type ``device``. Each number is passed once."""

    def __init__(self, program: Program, device: str) -> None:
        self._program = program
        self._device = device
        self._floats: dict[HostValue, HostScalar | None] = {}
        self._arguments: dict[HostValue | Node, Node] = {}

    def add(self, value: HostValue) -> None:
        """Record that ``value`` is a float, so that ``scalar`` accepts it."""
        self._floats[value] = None

    def scalar(self, value: HostValue, device: torch.device) -> HostScalar:
        """Return a float that the host computes, as float64.

        Raises:
            NotLowered: ``value`` is not a float.
        """
        if value not in self._floats:
            raise NotLowered(f"{value.name}, which the host computes")
        if self._device != "cpu":
            return HostScalar(self.argument(value.name, value, torch.float64, device))
        scalar = self._floats[value]
        if scalar is None:
            scalar = self._floats[value] = HostScalar(self._tensor(value))
        return scalar

    def _tensor(self, value: HostValue) -> Node:
        """Append a host call that makes a 0-d float64 tensor of the number, for kernels on CPU."""
        name = f"{value.name}_tensor"
        target = torch.ops.aten.scalar_tensor.default
        call = ExternCall(name, target, (value,), {"dtype": torch.float64}, reads=())
        layout = Layout((), (), torch.float64, torch.device("cpu"))
        result = Extern(name=name, layout=layout, origin=name, call=call, path=())
        call.outputs.append(result)
        self._program.steps.append(call)
        return result

    def argument(self, name: str, value: HostValue | Node, dtype: torch.dtype, device: torch.device) -> Node:
        """Return the host's ``value`` (a number, or a tensor with one element) as a GPU kernel argument."""
        if value not in self._arguments:
            function = tensor_bits if isinstance(value, Node) else number_bits
            name = f"{name}_bits"
            call = ExternCall(name, function, (value,), {}, tuple(tensors(value)))
            layout = Layout((), (), dtype, device)
            argument = Argument(name=name, layout=layout, origin=name, call=call)
            call.outputs.append(argument)
            self._program.steps.append(call)
            self._arguments[value] = argument
        return self._arguments[value]
