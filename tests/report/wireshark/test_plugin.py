"""The Lua file with the package."""

from rocescope.report.wireshark.plugin import NAME, text


def test_it_registers_its_fields():
    assert NAME.endswith(".lua") and "register_postdissector(rocescope)" in text()
