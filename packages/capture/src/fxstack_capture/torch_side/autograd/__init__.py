"""Autograd inside of the program.

``gradients`` records ``backward`` and ``torch.autograd.grad``, ``autograd_function`` makes an
``autograd.Function`` one node, ``tensor_hooks`` keeps hooks in the graph, ``parameters`` and
``inference_mode`` handle leaves and modes. Begin with ``gradients``.
"""
