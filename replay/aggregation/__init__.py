"""In-network aggregation: switches sum gradients of training jobs in a memory they share."""
