"""Hooks for saved tensors that a program has on around compiled calls."""

import torch
from beside_eager import Programs

program = Programs()


@program(backend="eager", breaks=0)
def hooks_with_effects_see_the_program_s_tensors_alone(c):
    seen = []

    def pack(tensor):
        seen.append(("packed", type(tensor).__name__, tensor.sum().item()))
        return tensor

    def unpack(tensor):
        seen.append("unpacked")
        return tensor

    x = torch.ones(3, requires_grad=True)
    f = c(lambda x: x * x)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = f(x)
    y.sum().backward()
    return seen, x


test_equals_eager = program.tests()
