"""Autograd inside of the program.

``gradients`` records ``backward`` and ``torch.autograd.grad``. ``autograd_function`` makes an
``autograd.Function`` one node. ``tensor_hooks`` records hooks in the graph. ``inference_mode``
turns inference mode on in the trace. Begin with ``gradients``.
"""
