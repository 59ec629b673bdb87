"""Result records: immutable, with a versioned schema."""
