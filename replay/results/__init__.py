"""Result records of replay, sweep and recover-seed."""
