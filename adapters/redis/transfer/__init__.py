"""Keys on their way to another member: rows, slices, pages."""
