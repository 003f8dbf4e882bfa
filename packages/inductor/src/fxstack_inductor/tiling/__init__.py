"""Tiles of GPU kernels: which loops a tile spans, its sizes, warps and pipelined loads.

``tiles`` serves kernels in general, ``product_tiles`` and ``attention_tiles`` matrix products and attention;
``kernels`` has the records of written kernels. Modules here import ``ir``, ``errors`` and ``schedule.loops``. Begin
with ``tiles``.
"""
