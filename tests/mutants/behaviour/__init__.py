"""Faults of behaviour, planted one at a time or together, and which suite finds each of them.

    *.toml         the mutants by room; compounds.toml combines them
    mutant.py      reads them, and plants one in a copy of the tree
    suites.py      the suites, from quick to slow, and what a run of one says
    table.py       results.json: what found each mutant, and what that took
    __main__.py    `make mutants-behaviour`

A mutant is a list of texts to be replaced. `test_behaviour.py` checks that each still applies, and plays the
floor: mutants that `make test` alone must find.
"""
