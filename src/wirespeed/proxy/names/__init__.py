"""DNS names of servers with several addresses."""
