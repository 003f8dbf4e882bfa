"""Saved-tensor hooks traced into the forward's epilogue and the backward's prologue.

``pack_unpack`` traces one pair of hooks, ``identity`` decides whether a hook may be traced once, ``passes``
puts hooks into the joint graph before partitioning or into the two graphs after it. The folder imports
``tracing``. Begin with ``pack_unpack``.
"""
