"""Mirrors of pre-existing objects: everything a traced frame reads from outside passes through
here.
"""

from fxstack_capture.objects.object_model import ObjectModel

__all__ = ["ObjectModel"]
