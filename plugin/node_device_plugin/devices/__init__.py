"""The devices of this node: found, checked, and what is known of each."""
