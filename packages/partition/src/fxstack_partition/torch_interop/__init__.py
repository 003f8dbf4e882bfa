"""Joint graphs and partitioners of torch's own ahead-of-time layer.

``from_torch`` reads them, ``to_torch`` offers ours to torch. ``keep_inputs`` and ``keep_states`` repair
partitions from elsewhere. The folder imports ``api`` and ``extraction``. Begin with ``from_torch``.
"""
