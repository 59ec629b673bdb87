"""The parts of a run as arrays: fabric, workload, state and random draws."""
