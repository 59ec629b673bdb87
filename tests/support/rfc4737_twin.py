"""RFC 4737 by the letter: definitions over the whole list of arrivals, as slow as they read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Result:
    """Metrics of one list of arrivals."""

    reordered: int = 0
    extents: Counter = field(default_factory=Counter)
    late_times: list = field(default_factory=list)
    held: list = field(default_factory=list)
    byte_offsets: list = field(default_factory=list)
    gaps: list = field(default_factory=list)
    gap_times: list = field(default_factory=list)
    n_degrees: Counter = field(default_factory=Counter)
    """Packets by the largest n for which they are n-reordered, n > 0."""
    runs: list = field(default_factory=list)


def measure(arrivals):
    """`arrivals`: (number, time, bytes) of first copies, in order of arrival."""
    result = Result()
    numbers = [number for number, _, _ in arrivals]
    next_expected = numbers[0] if numbers else 0
    run = 0
    last = None
    for i, (s, time, _) in enumerate(arrivals):
        if s >= next_expected:
            next_expected = s + 1
            run += 1
            continue
        result.reordered += 1
        j = next(k for k in range(i) if numbers[k] > s)
        result.extents[i - j] += 1
        result.late_times.append(time - arrivals[j][1])
        result.held.append(sum(n > s for n in numbers[j:i]))
        result.byte_offsets.append(sum(b for n, _, b in arrivals[j:i] if n > s))
        if last is None or j > last:
            if last is not None:
                result.gaps.append(j - last)
                result.gap_times.append(arrivals[j][1] - arrivals[last][1])
            last = j
        n = 0
        while n < i and numbers[i - 1 - n] > s:
            n += 1
        if n:
            result.n_degrees[n] += 1
        if run:
            result.runs.append(run)
            run = 0
    return result
