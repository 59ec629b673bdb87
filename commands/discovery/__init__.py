"""`rocescope discover`: a fabric from the answers of its devices."""
