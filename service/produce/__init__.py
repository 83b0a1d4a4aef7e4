"""Produces records that arrive over HTTP: parsed, submitted to the client, and answered one by one."""
