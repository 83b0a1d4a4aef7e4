"""A producer's results: futures, tickets, outcomes of batches, status."""
