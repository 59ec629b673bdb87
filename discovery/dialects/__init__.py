"""What is asked of each kind of device, and how its answers are read."""
