"""Random programs of views, in-place operators and outputs over a few inputs."""

import contextlib

import torch

VIEWS = {
    "t": lambda x: x.mT if x.dim() >= 2 else x[None],
    "first": lambda x: x[0] if x.dim() else x.view(1),
    "tail": lambda x: x[1:] if x.dim() else x.view(1),
    "flat": lambda x: x.reshape(-1),
    "none": lambda x: x.unsqueeze(-1),
    "detach": lambda x: x.detach(),
    "unbind": lambda x: x.unbind(0)[-1] if x.dim() else x.view(1),
    "chunk": lambda x: x.chunk(2, 0)[-1] if x.dim() else x.view(1),
    "diagonal": lambda x: x.diagonal() if x.dim() >= 2 else x.view(-1),
    "expand": lambda x: x.expand(2, *x.shape),
    "alias": lambda x: x.view_as(x),
    "data": lambda x: x.data,
}
INPLACE = {
    "add_": lambda x, y: x.add_(1),
    "mul_": lambda x, y: x.mul_(2),
    "zero_": lambda x, y: x.zero_(),
    "addy_": lambda x, y: x.add_(y),
    "copyy_": lambda x, y: x.copy_(y),
    "muly_": lambda x, y: x.mul_(y),
    "sin_": lambda x, y: x.sin_(),
    "set0": lambda x, y: x.__setitem__(0, 3.0) if x.dim() else x.fill_(3.0),
    "exp_": lambda x, y: x.clamp_(-1, 1),
}
PURE = {
    "mul": lambda x, y: x * 2,
    "addy": lambda x, y: x + y,
    "clone": lambda x, y: x.clone(),
    "sum": lambda x, y: x.sum(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "mulxx": lambda x, y: x * x,
    "contiguous": lambda x, y: x.contiguous(),
    "to": lambda x, y: x.to(torch.float32),
}
OPS = [*VIEWS, *INPLACE, *PURE]
INPUTS = ["leaf", "plain", "nonleaf", "view", "leafview"]
MODES = ["grad", "no_grad"]


def make_input(kind, number):
    torch.manual_seed(number)
    x = torch.randn(3, 4)
    if kind == "leaf":
        return x.requires_grad_()
    if kind == "nonleaf":
        root = x.requires_grad_()
        made = root * 1.5
        made.root = root
        return made
    if kind == "view":
        return torch.randn(4, 3).t()
    if kind == "leafview":
        return torch.randn(5, 4)[1:4].requires_grad_()
    return x


def run_program(steps, outputs, inputs):
    values = list(inputs)
    for op, a, b, mode in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        with torch.no_grad() if mode == "no_grad" else contextlib.nullcontext():
            if op in VIEWS:
                values.append(VIEWS[op](x))
            elif op in INPLACE:
                # Reading what is being written is undefined in eager.
                same = y.untyped_storage()._cdata == x.untyped_storage()._cdata
                INPLACE[op](x, y.clone() if same and y is not x else y)
            else:
                values.append(PURE[op](x, y))
    return tuple(values[o % len(values)] for o in outputs)
