"""Flow control: fair turns, limits of requests at once, rates, quotas."""
