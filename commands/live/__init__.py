"""Commands on this host's interfaces."""
