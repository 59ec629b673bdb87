"""What PSNs tell: order, loss, retransmissions, answers and copies."""
