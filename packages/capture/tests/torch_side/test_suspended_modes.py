"""Torch-function modes around a trace."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fxstack_capture.torch_side.subclasses.suspended_modes import no_modes_left


def test_a_mode_that_an_interrupt_left_on_is_taken_off():
    before = torch._C._len_torch_function_stack()

    def interrupted():
        with no_modes_left():
            TorchFunctionMode().__enter__()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch._C._len_torch_function_stack() == before
