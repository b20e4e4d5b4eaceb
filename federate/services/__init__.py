"""What of the hub's network concerns the pods of a target: addresses, Services, policies, DNS."""
