"""Groups whose members are fixed: their nodes, and their replicas of objects."""
