"""Commands on fabrics, traffic, strategies and seeds."""
