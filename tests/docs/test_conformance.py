"""The page on conformance names every rule as the code states it, and every reason."""

from __future__ import annotations

from pathlib import Path

from rocescope.analyzer.measures.conformance.rules import REASONS, RULES


def test_rules_and_reasons(checkout: Path) -> None:
    page = (checkout / "docs" / "conformance.md").read_text()
    for rule in RULES:
        cells = (f"`{rule.id}`", rule.side, rule.title, rule.needs, rule.source, rule.certainty)
        assert f"| {' | '.join(cells)} |" in page
    for reason in REASONS:
        assert f"- {reason}\n" in page
