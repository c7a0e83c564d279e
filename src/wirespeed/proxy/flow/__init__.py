"""How much of a server each client may use: fair turns, requests at a time, rates."""
