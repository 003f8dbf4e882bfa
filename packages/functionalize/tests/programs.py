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
VIEWS |= {
    "narrow": lambda x: x.narrow(-1, 0, 1) if x.dim() else x.view(1),
    "select": lambda x: x.select(-1, 0) if x.dim() else x.view(1),
    "swap": lambda x: x.transpose(0, -1) if x.dim() else x.view(1),
    "split": lambda x: x.split(1)[0] if x.dim() else x.view(1),
    "squeeze": lambda x: x.squeeze(),
    "strided": lambda x: x.as_strided((2,), (1,)) if x.numel() >= 2 and x.is_contiguous() else x,
    "step": lambda x: x[::2] if x.dim() else x.view(1),
    "movedim": lambda x: x.movedim(0, -1) if x.dim() else x.view(1),
    "unfold": lambda x: x.unfold(-1, 1, 1) if x.dim() else x.view(1),
    "real": lambda x: torch.view_as_real(torch.complex(x, x)),
    "dtype": lambda x: x.view(torch.int32).view(torch.float32),
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
    "maskfill": lambda x, y: x.masked_fill_(x > 0, 0.5),
    "indexput": lambda x, y: x.__setitem__(x > 0, 0.25) if x.dim() else x.fill_(0.25),
    "addrow": lambda x, y: x[0].add_(y.sum()) if x.dim() else x.add_(1),
    "relu_": lambda x, y: x.relu_(),
    "detach_add": lambda x, y: x.detach().add_(1),
    "data_mul": lambda x, y: x.data.mul_(2),
    "setslice": lambda x, y: x.__setitem__(slice(0, 1), 1.5) if x.dim() else x.fill_(1.5),
    "exp_": lambda x, y: x.clamp_(-1, 1),
}
LAYOUTS = {
    "t_": lambda x: x.t_() if x.dim() == 2 else x.unsqueeze_(0),
    "swap_": lambda x: x.transpose_(0, -1) if x.dim() else x.unsqueeze_(0),
    "none_": lambda x: x.unsqueeze_(-1),
    "squeeze_": lambda x: x.squeeze_(),
    "rest_": lambda x: x.as_strided_((2,), (1,)) if x.numel() >= 2 and x.is_contiguous() else x,
    "detach_": lambda x: x.detach_(),
    "leaf_": lambda x: x.requires_grad_(),
}
"""Changes of size, strides and history in place."""
PURE = {
    "mul": lambda x, y: x * 2,
    "addy": lambda x, y: x + y,
    "clone": lambda x, y: x.clone(),
    "sum": lambda x, y: x.sum(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "mulxx": lambda x, y: x * x,
    "contiguous": lambda x, y: x.contiguous(),
    "to": lambda x, y: x.to(torch.float32),
    "mm": lambda x, y: x @ x.mT if x.dim() >= 2 else x * 3,
    "cat": lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)]),
    "where": lambda x, y: torch.where(x > 0, x, x * 0.5),
    "detached": lambda x, y: x.detach() * 2,
    "norm": lambda x, y: torch.nn.functional.layer_norm(x, x.shape[-1:]) if x.dim() else x,
    "double": lambda x, y: x.double().float(),
}
OPS = [*VIEWS, *INPLACE, *PURE]
ALL_OPS = [*VIEWS, *INPLACE, *LAYOUTS, *PURE]
SHARED = ["same", "view", "tail", "half"]
"""How the second input shares memory with the first: it is the same object, a view, a part; or they are disjoint parts."""
INPUTS = ["leaf", "plain", "nonleaf", "view", "leafview"]
GAPPED = ["gapped", "gapped nonleaf"]
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
    if kind == "gapped":
        return torch.randn(5, 6)[1:4, 1:5]
    if kind == "gapped nonleaf":
        root = torch.randn(5, 6).requires_grad_()
        made = (root * 1.5)[1:4, 1:5]
        made.root = root
        return made
    return x


def share_inputs(inputs, how):
    """Let the second input be made from the first."""
    if how is None:
        return inputs
    first, _, *rest = inputs
    second = {
        "same": lambda: first,
        "view": lambda: first.mT,
        "tail": lambda: first[1:],
        "half": lambda: first[:, :2],
    }[how]()
    if how == "half":
        first = first[:, 2:]
    for made in (first, second):
        if hasattr(inputs[0], "root") and not hasattr(made, "root"):
            made.root = inputs[0].root
    return (first, second, *rest)


def run_program(steps, outputs, inputs):
    values = list(inputs)
    for op, a, b, mode in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        with torch.no_grad() if mode == "no_grad" else contextlib.nullcontext():
            if op in VIEWS:
                values.append(VIEWS[op](x))
            elif op in LAYOUTS:
                # Without grad mode, the gradient that eager goes on to compute does not fit what was there before.
                if mode == "grad" or not x.requires_grad:
                    LAYOUTS[op](x)
            elif op in INPLACE:
                # Reading what is being written is undefined in eager.
                same = y.untyped_storage()._cdata == x.untyped_storage()._cdata
                INPLACE[op](x, y.clone() if same and y is not x else y)
            else:
                values.append(PURE[op](x, y))
    return tuple(values[o % len(values)] for o in outputs)
