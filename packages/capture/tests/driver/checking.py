"""Programs that check tensors, each made anew by a function. (Their asserts are not rewritten by the test runner here.)"""

import torch
import torch.nn.functional as F

TABLE = torch.arange(5.0)


def raising():
    def f(x):
        if x.isnan().any():
            raise ValueError(f"{x.isnan().sum().item()} of {x.numel()} are not numbers")
        return x * 2

    return f


def asserting():
    def f(x, *rest, scale=2, **named):
        assert (x > 0).all(), "must be positive"
        assert x.min() > 0
        return x * scale + sum(rest), named

    return lambda x: f(x, 1, 2, scale=3, name=4)


def with_effects():
    log = ["before", "after"]

    def f(x):
        log[:] = ["before"]
        if x.isnan().any():
            raise ValueError(log)
        log.append("after")
        return x + len(log), list(log)

    return f


def nested():
    count = 0

    def inner(y, limit):
        nonlocal count
        count = 1
        if (y > limit).any():
            raise OverflowError(count)
        return y + count

    def f(x):
        try:
            return inner(x, 1.5) + inner(x, 1.0), count
        except OverflowError as error:
            return error.args, count

    return f


def caught_before_the_operation_that_would_fail():
    def f(index):
        try:
            if (index >= 5).any():
                raise IndexError("out of the table")
            return TABLE[index]
        except IndexError as error:
            return str(error)

    return f


def random_numbers():
    def f(x):
        noise = F.dropout(x, 0.5) + torch.rand(2)
        if x.isnan().any():
            raise ValueError(torch.rand(1).item())
        return noise + torch.rand(2)

    return f


def module():
    class Checked(torch.nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls = 7
            if not torch.isfinite(x).all():
                raise ValueError(f"call {self.calls}")
            return super().forward(x)

    torch.manual_seed(0)
    checked = Checked(2, 2)
    return lambda x: checked(x)


def distributions():
    def f(x):
        normal = torch.distributions.Normal(x, x.abs())
        sample = normal.rsample()
        return sample, normal.log_prob(sample)

    return f


def check_of_a_torch_function():
    return lambda x: F.gaussian_nll_loss(x, x + 1, x)


def good(values):
    return bool(torch._is_all_true(values))


def good_early(values):
    if values.all():
        return True
    return False


def kept(values):
    found = good(values)
    del values
    return found


class Checker:
    def __init__(self, x):
        self.x = x

    def passes(self):
        return bool((self.x > 0).all())


FAILURES = (
    "not good(x > 0)",
    "not good_early(x > 0)",
    "not kept(x > 0)",
    "not Checker(x).passes()",
    "(lambda values: not kept(values))(x > 0)",
    "not (x > 0).all().item()",
    "not good(x > 0) or bool(x.isnan().any())",
    "not (good(x > 0) and good(x < 9))",
    "not all(bool(value > 0) for value in (x.sum(), x.min()))",
    "not all([(x > 0).all(), x.sum() > 0])",
    "any(value.isnan().any() for value in (x, -x))",
    "any([x.min() < 0, x.isnan().any()])",
)
"""Conditions of a ``raise`` whose bool is made elsewhere."""
STATEMENTS = (
    "ok = good(x > 0)\n    y = x * 3\n    if not ok:\n        raise ValueError(y.sum().item())",
    "ok = (x > 0).all() and (x < 9).all()\n    if not ok:\n        raise ValueError(len(x))",
    "bad = (x < 0).any() or x.isnan().any()\n    if bad:\n        raise ValueError(len(x))",
    "assert good(x > 0), len(x)",
    "assert good(x > 0) and not bool(x.isnan().any())",
)
BODIES = (*(f"if {text}:\n        raise ValueError(x.tolist())" for text in FAILURES), *STATEMENTS)


def program(body):
    scope = dict(globals())
    exec(f"def f(x):\n    {body}\n    return x * 2", scope)
    return lambda: scope["f"]


PROGRAMS = (raising, asserting, nested, random_numbers, module, distributions, check_of_a_torch_function)


def an_error_after_effects():
    log = []

    def f(index):
        log[:] = ["before"]
        found = TABLE[index]
        log.append("after")
        return found, list(log)

    return lambda index: (f(index), list(log))


def an_error_that_is_handled():
    def f(index):
        try:
            return TABLE[index] + 1
        except IndexError as error:
            return str(error)

    return f


def an_error_in_a_block_with_an_end():
    log = []

    def f(index):
        log.clear()
        try:
            with torch.no_grad():
                return TABLE[index] * 2, log
        finally:
            log.append("end")

    return f


def an_error_in_a_callee():
    def inner(index, *, log):
        log.append(len(log))
        return TABLE[index]

    def f(index):
        log = []
        try:
            return inner(index, log=log), log
        except IndexError:
            return log

    return f


ERRORS = (
    an_error_after_effects,
    an_error_that_is_handled,
    an_error_in_a_block_with_an_end,
    an_error_in_a_callee,
)
