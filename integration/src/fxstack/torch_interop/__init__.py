"""``torch.compile`` and fxstack.

``backend`` is the entry point for ``torch.compile(backend="fxstack")``; ``options`` translates the options of
torch.compile. The folder imports ``log``, ``pipeline`` and ``settings``. Begin with ``backend``.
"""
