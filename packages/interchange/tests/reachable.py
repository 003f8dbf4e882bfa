"""What the functions and methods that a file may name do with a function: call it, or return one.

A file has no functions but those that it may name itself. As long as none of them returns a function, a class,
a module or another object with code, and only known ones call their arguments, a file runs nothing else.
"""

import contextlib
import io
import sys
import warnings

import torch

from fxstack_interchange.format.encoding.targets import _table, is_tensor_method

METHODS = [f".{name}" for name in dir(torch.Tensor) if is_tensor_method(name)]
NAMES = sorted(_table().keys() - {"builtins.getattr"}) + METHODS
"""Readers check the arguments of ``getattr``."""

DATA = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)
DATA += (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(NotImplemented),
    slice,
    range,
    torch.SymInt,
    torch.SymBool,
)
EVENTS = (
    "exec",
    "compile",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "pickle.",
    "marshal.",
    "code.",
)

CALLERS = {"torch.nn.functional.triplet_margin_with_distance_loss"}
"""Functions that call an argument: one that the file may name."""

CHANGE_STATE = (
    "set_",
    "_set_",
    "manual_seed",
    "seed",
    "autocast_",
    "clear_autocast",
    "_enter",
    "_exit",
    "initial_seed",
    "_print",
)
LEFT_OUT = (
    "cuda",
    "cudnn",
    "miopen",
    "mkldnn",
    "mps",
    "quantized",
    "qparams",
    "sobol",
    "philox",
    "pin_memory",
)
"""Parts of names of functions that are not called here: state of the process, and other devices' kernels."""


def callable_of(name):
    return getattr(torch.Tensor, name[1:]) if name.startswith(".") else _table()[name]


def is_data(value, given):
    """Whether a result is data, and functions that the caller has ``given``."""
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(is_data(item, given) for item in value)
    return value is given or isinstance(value, DATA)


def skipped(name):
    last = name.rpartition(".")[2]
    return last.startswith(CHANGE_STATE) or any(part in last for part in LEFT_OUT)


EVENTS_SEEN, WATCHING = [], []


def _audit(event, args):
    if WATCHING and event.startswith(EVENTS):
        EVENTS_SEEN.append((event, str(args)[:100]))


def argument_lists(reached):
    x = torch.ones(2, 2)
    dunder = "__class__"
    yield from (
        (reached,),
        (x, reached),
        (reached, x),
        (x, x, reached),
        (x, dunder),
        (dunder,),
        (x, "__globals__", reached),
    )
    yield from (
        (x,),
        (x, x),
        (x, 0),
        ([x, x],),
        (x, [0]),
        ((reached, x),),
        (x, (reached,)),
        (reached, (x,), x, dunder),
    )


def found(name):
    """Return what is wrong with a target: it calls a function, returns more than data, or touches the system."""
    if skipped(name):
        return []
    wrong, target = [], callable_of(name)

    def reached(*args, **kwargs):
        wrong.append("calls an argument")

    if not EVENTS_SEEN and not WATCHING:
        sys.addaudithook(_audit)
        EVENTS_SEEN.append(("first", ""))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for args in argument_lists(reached):
            before = len(EVENTS_SEEN)
            try:
                WATCHING.append(name)
                result = target(*args)
            except Exception:  # of wrong arguments
                continue
            finally:
                WATCHING.clear()
            if not is_data(result, reached):
                wrong.append(f"returns {type(result)} of {args[1:]!r:.60}")
            wrong += [str(event) for event in EVENTS_SEEN[before:] if event[0] != "import"]
    return [] if name in CALLERS and set(wrong) == {"calls an argument"} else sorted(set(wrong))
