"""What is wrong, where, since when and who suffers: findings from measures and hops."""
