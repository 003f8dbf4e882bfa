"""Autograd inside of the program.

``gradients`` records ``backward`` and ``torch.autograd.grad``. ``autograd_function`` makes an
``autograd.Function`` one node. ``tensor_hooks`` records hooks in the graph. ``parameters`` and
``inference_mode`` handle leaves and inference mode. Begin with ``gradients``.
"""
