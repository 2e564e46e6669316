"""Whether the CDI specs of a node, own and foreign, are what its runtime will take."""
