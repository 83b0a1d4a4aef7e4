"""The I/O thread: drains, sends and settles batches, and keeps the state of idempotence."""
