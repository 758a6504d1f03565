"""Ask and tell over HTTP: clients get queries and tell outcomes."""
