"""How traffic is spread over paths."""
