"""Taking over the database that an operator already has, and handing it back."""
