"""``torch.compile`` and fxstack.

``backend`` is the entry point for ``torch.compile(backend="fxstack")``; ``counters``, ``metrics`` and
``structured_trace`` fill torch's own records. The folder imports ``log``, ``pipeline`` and ``settings``. Begin with
``backend``.
"""
