"""How a client gets tokens: the values of ``Client(url, auth=…)``."""
