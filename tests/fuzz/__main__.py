"""`python -m tests.fuzz`: hostile input for some minutes; the exit code is 1 where anything was found.

The same seed makes the same inputs, more or fewer of them in the given time. Findings are written to
`tests/fuzz/corpus`, which the suite replays: commit them with the fix. With `--keep` the figures go into
`results.json`, from which the documentation's table is made.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.long_run import fuzz
from tests.fuzz.report import inputs_tried_table


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10_000), help="chosen by chance if absent"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long; %(default)s")
    parser.add_argument(
        "--target", default="", help="only parts and decoders with this in their name; all if absent"
    )
    parser.add_argument("--keep", action="store_true", help="write the figures to tests/fuzz/results.json")
    chosen = parser.parse_args()
    print(f"--seed {chosen.seed} --minutes {chosen.minutes:g} --target {chosen.target!r}", flush=True)
    run = fuzz(chosen.seed, chosen.minutes, lambda said: print(said, flush=True), chosen.target)
    if not run.parts:
        parser.error(f"nothing has {chosen.target!r} in its name")
    for part in run.parts:
        for finding in part.findings:
            print(f"kept {finding.write()}")
    if chosen.keep:
        run.write()
    print(inputs_tried_table(run))
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
