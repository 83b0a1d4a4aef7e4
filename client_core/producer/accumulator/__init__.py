"""Records on their way into batches: partitioner, batches, queues, buffer memory, and the drain by node."""
