"""The I/O thread: drains batches, sends them, settles them by the answers, keeps the idempotence state."""
