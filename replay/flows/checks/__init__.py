"""Properties and failures of a fabric, counted, not simulated."""
