"""Joint graphs and partitioners of torch's own ahead-of-time layer.

``from_torch`` reads torch's joint graphs and partitioners, ``to_torch`` offers this package's partitioners to
torch, ``repairs`` completes partitions from outside. The folder imports ``api`` and ``extraction``. Begin
with ``from_torch``.
"""
