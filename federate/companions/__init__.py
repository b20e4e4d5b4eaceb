"""What a pod needs comes along: ConfigMaps and Secrets of the hub, under names of our own."""
