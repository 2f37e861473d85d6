"""`python -m tests.suites`: how much of the suites the analysis finds. With --update [PROGRAM ...], the oracle runs first."""

from __future__ import annotations

import argparse

from tests.suites.classify import SUITES, report, update


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("--update", nargs="*", metavar="PROGRAM", help="ask the oracle anew (about all programs, or these)")
    options = parser.parse_args()
    if options.update is not None:
        for suite, cases in SUITES.items():
            named = [name for name in options.update if name in cases]
            if named or not options.update:
                update(suite, named)
    print("\n\n".join(report(suite) for suite in SUITES))


if __name__ == "__main__":
    main()
