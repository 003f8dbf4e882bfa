"""Frozen records of what a captured graph does to its inputs and what its outputs are.

``records`` describes inputs and outputs; ``replay`` makes a tensor that aliases another tensor again. All
other folders of the package read these records. This folder imports none of them.
"""
