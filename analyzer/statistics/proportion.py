"""Confidence interval of a share."""

from __future__ import annotations

import math

_Z = 1.959963984540054  # of the normal distribution, 95 % two-sided


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % confidence interval of hits / of: low and high, 0 to 1.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927. It
    holds for few hits too. hits is at most `of`; (0, 1) without any trial.
    """
    if of <= 0:
        return 0.0, 1.0
    share, z2 = hits / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == of else min(1.0, middle + half)
    return low, high
