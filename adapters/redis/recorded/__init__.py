"""Commands that the server decides: a script executes them and records what they did, in one step."""
