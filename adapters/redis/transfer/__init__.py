"""Transfer of keys to another member: rows, slices, pages."""
