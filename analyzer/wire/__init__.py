"""The packet table, its columns, and the registries that its columns point into."""
