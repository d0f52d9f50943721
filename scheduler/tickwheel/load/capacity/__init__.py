"""How many workers a scenario needs."""
