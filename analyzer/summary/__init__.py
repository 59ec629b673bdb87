"""From the tracker and the measures to result records."""
