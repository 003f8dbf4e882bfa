"""Side effects on objects of the program, as frozen records.

``records`` describes them; ``diff`` compares the proxies of a trace with the objects that they stand for, and
the difference is the side effect. ``emit.effects`` replays the records. The folder imports ``objects``. Begin
with ``records``.
"""
