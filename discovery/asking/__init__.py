"""Questions to devices while a trace runs: next hops, counters, changes."""
