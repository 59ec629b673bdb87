"""The analysis of captures: from frames to an Analysis."""
