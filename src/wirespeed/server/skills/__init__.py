"""Skills of a server (`Server.add_skills`), served in both eras."""
