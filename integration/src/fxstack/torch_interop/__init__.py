"""``torch.compile`` and fxstack.

``backend`` is the entry point for ``torch.compile(backend="fxstack")``; ``options`` says what torch.compile's
options mean here. The folder imports ``pipeline`` and ``settings``.
"""
