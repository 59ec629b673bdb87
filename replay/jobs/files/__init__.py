"""Files of jobs: GOAL schedules, Chakra execution traces, and a JSON form of its own."""
