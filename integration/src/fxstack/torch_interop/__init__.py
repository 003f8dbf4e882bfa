"""``torch.compile`` and fxstack.

``options`` translates the options of torch.compile, ``described_settings`` says what torch's settings mean here.
``counters``, ``metrics`` and ``structured_trace`` fill torch's own records. The folder imports ``log``. Begin with
``options``.
"""
