"""Autograd inside of the program.

``gradients`` records ``backward`` and ``torch.autograd.grad``. ``autograd_function`` records the call of an
``autograd.Function`` as one node. ``tensor_hooks`` records hooks in the graph. ``inference_mode`` turns
inference mode on in the trace. Begin with ``gradients``.
"""
