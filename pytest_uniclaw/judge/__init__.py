"""The hidden side (checks, supervisor) and the user's side (user simulator, rewriter), kept apart by their types."""
