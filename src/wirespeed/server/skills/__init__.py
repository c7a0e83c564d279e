"""Skills of a server: what `Server.add_skills` takes, served in both eras."""
