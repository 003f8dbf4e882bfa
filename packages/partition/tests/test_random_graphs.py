"""Random programs: every partitioner's forward and backward compute the joint graph's results."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joints import check

UNARY = (
    torch.sin,
    torch.exp,
    torch.relu,
    torch.sigmoid,
    lambda x: x.t(),
    lambda x: x.reshape(-1, 2).reshape(4, 4),
    lambda x: x.softmax(-1),
    lambda x: torch.native_dropout(x, 0.5, True)[0],
    lambda x: x * torch.rand_like(x),
    lambda x: x.sort(-1)[0],
    lambda x: x.sum(0, keepdim=True).expand(4, 4),
    lambda x: torch.cat([x[:2], x[2:] * 2]),
    lambda x: torch.nn.functional.layer_norm(x, (4,)),
    lambda x: x.detach() + x,
    lambda x: torch.split(x, 2)[1].repeat(2, 1),
)
BINARY = (torch.add, torch.mul, torch.mm, torch.sub, lambda a, b: torch.where(a > b, a, b.cos()))

steps = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12
)


def program(choices, outputs):
    def run(x, y):
        values = [x, y]
        for op, left, right in choices:
            a, b = values[left % len(values)], values[right % len(values)]
            table = (*UNARY, *BINARY)
            chosen = op % len(table)
            values.append(table[chosen](a) if chosen < len(UNARY) else table[chosen](a, b))
        picked = [values[index % len(values)] * 1 for index in outputs]
        return (values[-1] + x * 0 + y * 0, *picked)

    return run


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps, st.lists(st.integers(0, 99), max_size=2), st.sampled_from(["save_all", "min_cut", "sac", "budget"])
)
def test_forward_and_backward_equal_the_joint_graph(choices, outputs, name):
    torch.manual_seed(3)
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    check(program(choices, outputs), *inputs, name=name)
