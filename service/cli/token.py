"""`pilotfish token`: a new token, shown once, and its entry for the tokens file.

The entry goes to standard output and the token to standard error, so that

    pilotfish token billing --read 'orders*' >> tokens.toml

puts into the file what belongs there and shows the token to whoever sits in front of it. It is kept nowhere.
"""

from __future__ import annotations

import click

from service.admission.tokens_file import entry_text, fault_of_name, fault_of_pattern, new_token


def _name(value: str) -> str:
    """A name that a caller can have."""
    fault = fault_of_name(value)
    if fault is not None:
        raise click.BadParameter(fault)
    return value


def _pattern(value: str) -> str:
    """A topic's name, its beginning and a star, or a star alone."""
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
