"""What eager's kernels return where torch's fake kernels say something else: dtypes, and results that are undefined."""

import torch
from beside_eager import Programs

program = Programs()


@program(graphs=1, breaks=0)
def random_numbers_of_two_dtypes(c):
    @c
    def f(single, double, half):
        return (
            torch.normal(single, double) + 1,
            torch.normal(half, single),
            torch.normal(double, half) * 2,
            torch.binomial(single.round(), single / 9),
        )

    torch.manual_seed(1)
    single = torch.linspace(0.5, 4, 40)
    return f(single, single.double(), single.half()), torch.rand(2)


test_equals_eager = program.tests()
