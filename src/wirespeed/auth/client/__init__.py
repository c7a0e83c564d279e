"""Authorization of clients: the values of ``Client(url, auth=…)``."""
