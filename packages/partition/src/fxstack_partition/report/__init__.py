"""Partitions explained and compared.

``explain`` states the reason for each saved value. ``compare`` makes a table of partitioners; ``plots`` and
``html`` draw that table. No other folder imports this one. Begin with ``compare``.
"""
