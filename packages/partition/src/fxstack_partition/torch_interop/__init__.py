"""Joint graphs and partitioners of torch's own ahead-of-time layer.

``from_torch`` reads torch's, ``to_torch`` offers this package's to torch, ``repairs`` makes partitions from outside
complete. The folder imports ``api`` and ``extraction``. Begin with ``from_torch``.
"""
