"""The data of screens: frozen columns of flows, paths and events at one time."""
