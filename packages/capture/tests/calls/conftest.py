import pathlib
import sys

sys.path[:0] = [
    str(pathlib.Path(__file__).parents[1] / part) for part in ("calls", "objects", "api", "emit", "driver")
]
