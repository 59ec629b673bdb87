"""Training jobs as NCCL sends them, captured at taps, with the truth of every step."""
