"""`pilotfish token`: makes a new token, shown once, and its entry for the tokens file.

The entry goes to standard output and the token to standard error, so that

    pilotfish token billing --read 'orders*' >> tokens.toml

appends the entry to the file and shows the token to the user. The token is stored nowhere.
"""

from __future__ import annotations

import click

from service.admission.tokens_file import entry_text, fault_of_name, fault_of_pattern, new_token


def _name(value: str) -> str:
    """Checks that the name is a valid caller name."""
    fault = fault_of_name(value)
    if fault is not None:
        raise click.BadParameter(fault)
    return value


def _pattern(value: str) -> str:
    """Checks the pattern: a topic's name, a prefix with a star, or a star alone."""
    fault = fault_of_pattern(value)
    if fault is not None:
        raise click.BadParameter(fault)
    return value


@click.command(short_help="Makes a token for a caller of the API.")
@click.argument("name", type=_name)
@click.option(
    "--read",
    type=_pattern,
    multiple=True,
    metavar="PATTERN",
    help="Topics that it may look up: a name, 'prefix*' or '*'. Repeatable.",
)
@click.option(
    "--produce",
    type=_pattern,
    multiple=True,
    metavar="PATTERN",
    help="Topics that it may write to, likewise. Repeatable.",
)
def token(name: str, read: tuple[str, ...], produce: tuple[str, ...]) -> None:
    """Makes a token for the caller NAME: the entry for the tokens file, and the token, shown only once."""
    new = new_token()
    click.echo(entry_text(name, new, read, produce), nl=False)
    click.echo(f"The token of {name}, shown only now: {new}", err=True)
