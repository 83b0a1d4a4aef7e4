"""How callers share what there is only so much of: waiting requests and bytes, streams, watchers, new names.

The rule is that of shared-memory switches (dynamic queue length thresholds, Choudhury and Hahne 1998, with
alpha = 1): nobody may hold more than is still free. One alone gets half; of several that always want more,
each comes to hold as much as is left free for the next. Nobody has to be known beforehand, and what is given
back is at once everybody's. Without tokens there is one caller, ANYONE, and nothing to share. Pure.
"""

from __future__ import annotations

from typing import Final

from service.admission.caller import ANYONE, Caller

#: The rule, for messages.
FAIR_SHARE: Final = "nobody may hold more than is still free"


def exceeds_share(own: int, more: int, total: int, limit: int) -> bool:
    """Whether `more` would leave a caller with more than is still free of what `limit` bounds in `total`."""
    return own + more > limit - (total + more)


def is_one_too_many(caller: Caller, own: int, total: int, limit: int) -> bool:
    """Whether one more is beyond the caller's share. The first is not, while there is room at all."""
    return caller is not ANYONE and own > 0 and exceeds_share(own, 1, total, limit)
