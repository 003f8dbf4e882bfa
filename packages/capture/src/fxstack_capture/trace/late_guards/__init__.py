"""Guards that depend on the whole trace: each part collects what the program did and adds its guards in ``close``."""
