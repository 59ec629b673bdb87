"""What a run consists of: fabric, workload, state and random draws as arrays."""
