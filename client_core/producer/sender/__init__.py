"""The I/O thread: drains batches, sends them, settles what the brokers answer, keeps idempotence's state."""
