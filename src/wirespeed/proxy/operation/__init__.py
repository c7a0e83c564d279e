"""What the operator of a proxy sees: numbers, states, errors, the admin listener."""
