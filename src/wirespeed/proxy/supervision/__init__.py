"""The life of servers behind the proxy."""
