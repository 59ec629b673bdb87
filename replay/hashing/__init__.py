"""ECMP hash models: Linux exactly, and the documented functions of switch ASICs.

bound = bind(keys, HashSettings("crc16-ccitt", "5-tuple+qpn"))
members = bound.choose(range(10_000), equal_cost(16))   # uint16[10000, n]
"""
