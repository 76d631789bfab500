"""Commands that the server decides: it writes down what it did in the step that does it."""
