"""Side effects on objects of the program, as frozen records.

``records`` defines the records. ``diff`` compares the proxies of a trace with the original objects; the
difference is the side effect. ``emit.effects`` replays the records. The folder imports ``objects``. Begin
with ``records``.
"""
