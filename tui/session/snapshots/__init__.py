"""What screens draw: frozen columns of flows, paths and events at one moment."""
