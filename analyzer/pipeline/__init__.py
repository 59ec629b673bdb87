"""One analysis, from packets of any source to its conclusions."""
