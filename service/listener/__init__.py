"""Where callers connect: sockets, TLS, HTTP/1.1, and the guards in front of every path."""
