"""The API's front: sockets, TLS, HTTP/1.1, and the guards before every path."""
