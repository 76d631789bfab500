"""Whether keys are worth the same at all members, and repair of those that are not."""
