"""What a fabric is and what fails with it: counted, not simulated."""
