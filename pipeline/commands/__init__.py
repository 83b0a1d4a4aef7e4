"""The subcommands of `pilotfish-pipeline`, one module each: parse options, make one call, set the exit code.

The modules import Spark only inside the command, so wrong options are reported at once.
"""
