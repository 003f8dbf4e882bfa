"""``python -m fxstack``: the command line of ``fxstack.cli``."""

from fxstack.cli.main import main

if __name__ == "__main__":
    main()
