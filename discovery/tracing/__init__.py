"""The path of every flow on a fabric, hop by hop, with the evidence of each hop."""
