"""Communication patterns: who sends how much to whom, and when. One small file each."""
