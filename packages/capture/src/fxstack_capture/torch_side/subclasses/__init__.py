"""Tensor subclasses and torch-function modes.

``overrides`` runs the program's ``__torch_function__`` in torch's order. ``wrappers`` handles subclasses with
``__torch_dispatch__``. ``fake_classes`` makes fakes that torch treats as instances of a tensor class of the
user. Begin with ``overrides``.
"""
