"""What a producer gives back: futures, tickets, outcomes of batches, status."""
