"""PSN analysis: order, loss, retransmissions, responses and copies."""
