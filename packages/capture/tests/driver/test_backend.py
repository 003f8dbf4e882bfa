"""What a backend may do while it compiles."""

import torch

import fxstack_capture


def test_state_that_a_backend_sets_is_put_back():
    def backend(module, _):
        torch.set_default_dtype(torch.float64)
        torch._C._set_grad_enabled(False)
        return module.forward

    compiled = fxstack_capture.optimize(backend)(lambda x: x + 1)
    assert compiled(torch.ones(2, requires_grad=True)).requires_grad
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
