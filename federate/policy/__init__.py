"""What a target may run of a hub pod, and in which shape: decided before anything is made there."""
