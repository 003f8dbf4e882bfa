"""Find which inputs and outputs of a captured graph share memory, and what the graph mutates.

The modules read autograd's records and torch's functional tensors during and after a trace. They import
``metadata``, ``operators``, ``tracing`` and ``runtime.backward.tangents``, not ``hooks``, ``subclasses`` or
``disk``.
Begin with ``analyze``, which classifies inputs and outputs, then read ``aliases``. ``synthetic_bases`` merges
inputs that share memory; ``inplace`` guards each in-place operator.
"""
