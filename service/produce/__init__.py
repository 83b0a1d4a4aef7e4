"""Records in over HTTP: understood whole, handed to the client, told of one by one."""
