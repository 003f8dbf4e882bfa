"""Tensor subclasses and torch-function modes.

``overrides`` runs ``__torch_function__`` of the program in torch's order; ``wrappers`` follows subclasses
with ``__torch_dispatch__``; ``fake_classes`` makes fakes that torch takes for instances of a user's class.
Begin with ``overrides``.
"""
