"""`replay` and `sweep`: comparison of strategies and seeds on the same traffic."""
