"""What an operator sees of faults: alerts, panels and the status, in simulated time."""
