"""Ask and tell over HTTP: clients that are given queries, and tell outcomes."""
