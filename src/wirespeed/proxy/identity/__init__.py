"""The identity of each principal at the servers behind the proxy."""
