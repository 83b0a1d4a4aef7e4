"""Records that come one by one on an open request, acknowledged as they are."""
