"""Partitions explained and compared.

``explain`` says why each value is saved, ``compare`` tabulates partitioners, ``plots`` and ``html`` draw
them. No other folder imports this one. Begin with ``compare``.
"""
