"""Flags of torch and of its libraries that compiled code sets and reads."""

import types
import warnings

import torch
from beside_eager import Programs

program = Programs()


@program()
def a_flag_of_a_backend_is_set(c):
    @c
    def f(x):
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = not before
        return x + 1, before, torch.backends.cudnn.benchmark

    try:
        return [f(torch.ones(2)) for _ in range(3)], torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = False


@program(breaks=0)
def flags_that_are_read_are_guarded(c):
    @c
    def f(x):
        return x * (2 if torch.backends.mkldnn.deterministic else 3), torch.get_num_interop_threads()

    first = f(torch.ones(2))
    torch.backends.mkldnn.deterministic = True
    try:
        return first, f(torch.ones(2))
    finally:
        torch.backends.mkldnn.deterministic = False


@program(breaks=1)
def uninitialized_memory_is_not_filled(c):
    @c
    def f(x):
        torch.utils.deterministic.fill_uninitialized_memory = False
        return x + 1

    try:
        return f(torch.ones(2)), torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


@program(breaks=0)
def property_of_a_module_object(c):
    class Settings(types.ModuleType):
        @property
        def scale(self):
            return self._scale

        @scale.setter
        def scale(self, value):
            self._scale = value * 2

    settings = Settings("settings")
    settings.scale = 1

    @c
    def f(x):
        settings.scale = settings.scale + 1
        return x * settings.scale

    return [f(torch.ones(2)) for _ in range(3)], vars(settings)["_scale"]


@program()
def anomaly_mode_around_a_part(c):
    @c
    def f(x):
        with torch.autograd.set_detect_anomaly(mode=True, check_nan=False):
            y = x.sin()
        return y, torch.is_anomaly_enabled()

    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = f(x)
        y[0].sum().backward()
    return y, x


test_equals_eager = program.tests()
