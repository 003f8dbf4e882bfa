"""Guards that depend on the whole trace.

Each module collects what the program did, and adds its guards when the trace ends (``close``).
"""
