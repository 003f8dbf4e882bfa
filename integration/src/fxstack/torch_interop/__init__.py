"""``torch.compile`` and fxstack.

``backend`` is the entry point for ``torch.compile(backend="fxstack")``; ``described_settings`` says what torch's
settings mean here; ``counters``, ``metrics`` and ``structured_trace`` fill torch's own records. The folder imports
``log``, ``pipeline``, ``settings`` and ``torch_options``. Begin with ``backend``.
"""
