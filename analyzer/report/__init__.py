"""Results out: terminal report, JSON, CSV, Parquet, Arrow."""
