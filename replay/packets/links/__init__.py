"""Links: queues, routes and loads."""
