"""The commands of `pilotfish-pipeline`, a module each: options in, one call, exit codes out.

A module here imports Spark only inside its command, so that a wrong word is told at once.
"""
