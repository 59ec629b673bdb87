"""A fabric as a YAML file, and specs of several kinds."""

from __future__ import annotations

LAB = """\
name: lab
defaults: {rate: 400G, delay: 500ns}
hash: {model: crc32, seed: 7}
nodes:
  leaf1: {hash: {model: linux, seed: 0x10, policy: 1}}
  leaf2:
  spine1:
  spine2: {plane: 1}
  host1: {kind: host, addresses: [10.0.1.10, "fd00::1"]}
  host2: {kind: host}
links:
  - [host1, leaf1]
  - {a: host2, b: leaf2}
  - {a: leaf1, b: spine1, rate: 100G, delay: 1us, count: 2}
  - [leaf1, spine2]
  - [leaf2, spine2]
  - {a: leaf2, b: spine1, rate: 1.6T}
"""

SPECS = (
    "leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2,down=leaf1-spine2#2,slow=leaf2>spine1:50G",
    "leaf-spine:leaves=3,spines=2,hosts=2,down=leaf1>spine2+host1",
    "fat-tree:k=4,down=spine3",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2",
    "rail:rails=2,servers=2,pods=2,spines=3,delay=2us",
)
