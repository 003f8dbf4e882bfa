"""Calls under autocast on CPU: operators of torch's database in each form, of each list of dtypes, and modules in training.

``differences`` compares dtypes, values and gradients with eager. Autocast is on inside of the compiled function or around it.
"""

from __future__ import annotations

import torch
from database_calls import FORMS, MODULES, OPERATORS, Program, difference, module_programs, operator_programs

LOW = torch.bfloat16
DTYPES = ("float32", "bfloat16", "mixed")
"""Of the inputs: autocast has lists for lower precision, for float32, and for the widest dtype of the arguments."""
SAMPLES = 3
TOLERANCE = {"aot_eager": {torch.float32: 1e-5, LOW: 1e-2}, "inductor": {torch.float32: 2e-2, LOW: 3e-2}}
"""Our kernels do not round between fused operators: results may be nearer to exact ones by a rounding to bfloat16."""


def cast_by_name() -> frozenset[str]:
    """The operators that autocast has rules for on CPU, without namespace and overload."""
    found = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    return frozenset(name.removeprefix("aten::").partition(".")[0] for name in found)


def cases() -> list[tuple[str, str, str, str]]:
    """``(operator or module, form, dtypes of the inputs, place of autocast)``."""
    operators = [
        (name, form, dtype, place)
        for name in OPERATORS
        for form in FORMS
        for dtype in DTYPES
        for place in ("inside", "around")
    ]
    return operators + [(name, "module", "float32", "inside") for name in MODULES]


def listed() -> list[tuple[str, str, str, str]]:
    """The cases of operators for which autocast has a rule."""
    names = cast_by_name()
    ruled = {n for n, op in OPERATORS.items() if {op.name.rpartition(".")[2], op.aten_name} & names}
    return [case for case in cases() if case[0] in ruled]


def differences(name: str, form: str, dtype: str, place: str, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager in the first samples, None if nothing does."""
    tolerances = TOLERANCE[backend]
    for number, program in enumerate(_programs(name, form, dtype)):
        chosen = _inside(program) if place == "inside" else program
        around = {} if place == "inside" else {"around": _autocast}
        found = difference(chosen, lambda t: tolerances.get(t.dtype, 1e-9), **around, backend=backend)
        if found is not None:
            return f"{found}, sample {number}"
    return None


def _programs(name: str, form: str, dtype: str) -> list[Program]:
    if form == "module":
        return [*module_programs(name, SAMPLES)]
    made = operator_programs(name, form, LOW if dtype == "bfloat16" else torch.float32, SAMPLES, trains=True)
    return [_mixed(program) if dtype == "mixed" else program for program in made]


def _mixed(program: Program) -> Program:
    (tensors,) = program.inputs
    halved = [
        t.detach().to(LOW).requires_grad_(t.requires_grad) if number % 2 and t.is_floating_point() else t
        for number, t in enumerate(tensors)
    ]
    return Program(program.build, (halved,))


def _autocast() -> torch.autocast:
    return torch.autocast("cpu", LOW)


def _inside(program: Program) -> Program:
    def build():
        function, own = program.build()

        def cast(*given):
            with torch.autocast("cpu", LOW):
                return function(*given)

        return cast, own

    return Program(build, program.inputs)
