"""``python -m fxstack_capture rule NAME``: say which rule or case decides a call of a callable."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from fxstack_capture.calls.decisions.explaining import UnknownNameError, explain


def main(arguments: list[str] | None = None) -> int:
    """Print the answer for each name. Return 2 if a name is unknown."""
    parser = argparse.ArgumentParser("python -m fxstack_capture", description=__doc__)
    rule = parser.add_subparsers(dest="command", required=True).add_parser(
        "rule", help="say what decides a call"
    )
    rule.add_argument(
        "names", nargs="+", metavar="NAME", help="torch.nn.functional.gelu, len, str.join, aten.add.Tensor"
    )
    rule.add_argument("--json", action="store_true", help="print a list of objects")
    given = parser.parse_args(arguments)
    answers, status = [], 0
    for name in given.names:
        try:
            answers.append(explain(name))
        except UnknownNameError as error:
            print(f"error: {error}", file=sys.stderr)
            status = 2
    if given.json:
        print(json.dumps([dataclasses.asdict(answer) for answer in answers], indent=2))
    else:
        print("\n".join(answer.text() for answer in answers))
    return status


if __name__ == "__main__":
    sys.exit(main())
